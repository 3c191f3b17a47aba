"""Diagnoses what ails a job and heals it (Dhalion, VLDB'17)."""
