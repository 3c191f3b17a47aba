"""What jobs, intents and measurements are. Pure: no clock, no randomness, no files."""
