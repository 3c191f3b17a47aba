"""Keeps the action log and the blacklist of a job (sections 4.2 and 4.3).

The log keeps the latest entries, by number or by age. The blacklist counts, for each action and
kind and operator of a diagnosis, how often it was tried and how often it did not help. It is not
purged with the log: what did not help is not tried again for a similar diagnosis. Chosen: what was
learned under one load is forgotten when the load has changed by half.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from trilithon.policies.dhalion.dhalion_parameters import ON, DhalionParameters
from trilithon.policies.dhalion.health import Diagnosis, LogEntry, action_key

_OTHER_LOAD: Final = 0.5


@dataclass(frozen=True, slots=True)
class ActionLog:
    entries: tuple[LogEntry, ...] = ()
    # By "kind/operator/action": tried, failed, and the emission at the last failure.
    tries: Mapping[str, tuple[int, int, float | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ActionLog":
        return cls(
            tuple(LogEntry(**entry) for entry in data.get("log", ())),
            {key: (t[0], t[1], t[2]) for key, t in data.get("tries", {}).items()},
        )

    def plain(self) -> dict[str, Any]:
        return {
            "log": [asdict(entry) for entry in self.entries],
            "tries": {key: list(value) for key, value in sorted(self.tries.items())},
        }

    @property
    def open(self) -> LogEntry | None:
        """The last entry if it was not evaluated yet."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.helped is None else None

    def added(self, entry: LogEntry, parameters: DhalionParameters) -> "ActionLog":
        kept = self.purged(entry.time_s, parameters).entries
        return replace(self, entries=(*kept, entry)[-max(1, parameters.log_entries) :])

    def purged(self, now_s: float, parameters: DhalionParameters) -> "ActionLog":
        """Without entries that are too old. One that is still to be evaluated stays."""
        if parameters.log_hours <= 0:
            return self
        oldest_s = now_s - 3600 * parameters.log_hours
        kept = (e for e in self.entries if e.time_s >= oldest_s or e.helped is None)
        return replace(self, entries=tuple(kept))

    def dropped(self) -> "ActionLog":
        """Without the last entry: the action was not done."""
        return replace(self, entries=self.entries[:-1])

    def evaluated(self, helped: bool, emission: float | None) -> "ActionLog":
        """The last entry with its verdict, which counts for the blacklist."""
        last = self.entries[-1]
        key = action_key(last.kind, last.operator, last.action)
        tried, failed, at = self.tries.get(key, (0, 0, None))
        tries = {**self.tries, key: (tried + 1, failed + (not helped), at if helped else emission)}
        return ActionLog((*self.entries[:-1], replace(last, helped=helped)), tries)

    def blacklist(self, parameters: DhalionParameters, emission: float | None) -> frozenset[str]:
        """The keys of what is blacklisted under the load of now."""
        return frozenset(
            key
            for key in self.tries
            if self._failures(key, parameters, emission)
            > parameters.failure_ratio * self.tries[key][0]
        )

    def tried_in_vain(
        self, diagnosis: Diagnosis, parameters: DhalionParameters, emission: float | None
    ) -> bool:
        """Whether an action failed for such a diagnosis, blacklisted or not."""
        prefix = action_key(diagnosis.kind, diagnosis.operator, "")
        return any(
            key.startswith(prefix) and self._failures(key, parameters, emission) > 0
            for key in self.tries
        )

    def _failures(self, key: str, parameters: DhalionParameters, emission: float | None) -> int:
        """How often an action failed; 0 where that does not count: without the blacklist, and
        under another load.
        """
        _, failed, at = self.tries[key]
        other_load = at and emission and abs(emission - at) > _OTHER_LOAD * at
        return 0 if parameters.blacklist != ON or other_load else failed
