"""Policies: pure functions from a scene and a state to decisions and the next state."""
