"""Henge's experiments (SoCC'18 and the report before it)."""
