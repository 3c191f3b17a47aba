"""What snapshots mean: pure functions from windows to numbers, each beside its formula.

All of them take and give arrays over every job at once. NaN is missing, and what is computed from
something missing is missing too.
"""
