"""A job as a file: reading it safely, checking what it says, and building the model from it."""
