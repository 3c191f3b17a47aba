"""What decides: pure functions from a scene and a state to decisions."""
