"""Who calls, what they may do, and the record of what they did."""
