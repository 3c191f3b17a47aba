"""What jobs are given to do: load to try them with."""
