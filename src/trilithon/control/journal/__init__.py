"""The journal: what was accepted, wanted, decided and done. The only place that speaks SQL."""

from trilithon.control.journal.writes import FILE, ActionResult, Journal, PlannedAction

__all__ = ["FILE", "ActionResult", "Journal", "PlannedAction"]
