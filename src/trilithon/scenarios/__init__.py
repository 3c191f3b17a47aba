"""Whole runs in a file: machines, jobs, intents, load, faults, a policy; and what came of them."""
