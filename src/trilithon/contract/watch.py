"""Shows the live figures of an engine's jobs without a controller."""

from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.contract.engine import Engine
from trilithon.contract.figures import summary
from trilithon.contract.observer import Observer
from trilithon.measures.assess import Assessment, assess_latest

WINDOW_S: Final = 10.0
KEPT_S: Final = 60.0


@dataclass
class Watcher:
    """The live figures of the jobs of an engine, updated by `look`."""

    engine: Engine
    observer: Observer = field(default_factory=lambda: Observer(KEPT_S))

    def look(self, now_s: float) -> list[dict[str, Any]]:
        """Takes the new reports and returns the live figures."""
        accepted = self.observer.observe(self.engine, now_s)
        return summary(self.assess(), accepted, self.observer.clock_set_s)

    def assess(self) -> Assessment | None:
        series = self.observer.series
        window = series.window(WINDOW_S)
        return None if window is None else assess_latest(series, window)
