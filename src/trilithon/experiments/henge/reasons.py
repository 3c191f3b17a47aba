"""Owns why a figure of ours is worse than the paper's, or is missing: a sentence for each, by experiment."""

from typing import Final

REASONS: Final[dict[tuple[str, str], str]] = {}
