"""Holds Stela's experiments: what the paper ran, what it measured, and random graphs beside it."""
