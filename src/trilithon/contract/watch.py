"""Owns looking at an engine from outside: reports become a series, and that the live figures of its jobs."""

from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Engine
from trilithon.contract.figures import summary
from trilithon.measures.assess import Assessment, assess
from trilithon.model.series import Series

WINDOW_S: Final = 10.0
KEPT_S: Final = 60.0


@dataclass
class Watcher:
    """What is known of the jobs of an engine, brought up to date by `look`."""

    engine: Engine
    assembler: Assembler = field(default_factory=Assembler)
    series: Series = field(default_factory=lambda: Series((), KEPT_S))
    _known: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def look(self, now_s: float) -> list[dict[str, Any]]:
        """Takes what was reported and gives the live figures."""
        accepted = self.engine.jobs()
        for name in self._known.keys() - accepted.keys():
            del self._known[name]
            self.assembler.forget(name)
        for name, one in accepted.items():
            version = (one.job, one.allocation.generation)
            if self._known.get(name) != version:
                self._known[name] = version
                self.assembler.expect(one.job, one.allocation)
        for report in self.engine.reports():
            self.assembler.take(report)
        if not self.series.snapshots or now_s > self.series.last.time_s:
            self.series = self.series.extended([self.assembler.snapshot(now_s)])
        return summary(self.assess(), accepted)

    def assess(self) -> Assessment | None:
        window = self.series.window(WINDOW_S)
        return None if window is None else assess(window)
