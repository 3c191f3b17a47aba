"""The daemon: the loop in a thread, and a small HTTP API on loopback in front of it."""
