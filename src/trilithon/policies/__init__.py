"""What to do about what was measured. Pure: from a series and a state to decisions and a state."""
