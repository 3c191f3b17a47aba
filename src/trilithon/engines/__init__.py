"""Where jobs run."""
