"""Henge: many jobs share one cluster, and every intent is kept or the sum of utilities is the best found."""
