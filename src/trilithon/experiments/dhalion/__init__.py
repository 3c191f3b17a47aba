"""Runs the experiments of Dhalion (VLDB'17)."""
