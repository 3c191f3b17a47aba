"""Henge: many jobs share one cluster; it meets all intents or maximises the sum of utilities."""
