"""Snapshots and series on disk: JSON for people, Parquet for everything else."""
