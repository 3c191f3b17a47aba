"""Recordings of snapshots: Parquet files for programs, JSON for people and for the wire."""
