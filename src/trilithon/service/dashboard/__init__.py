"""The dashboard: pages that the daemon renders, kept live by small scripts."""
