"""Owns the two books of an application: tasks that Spark must hold open, and slots that policies divide.

Spark checks its slots at every batch, and between two batches a query holds none: whoever trusts the
live figure lets a newcomer in that kills an old job. So nothing is started that is not in the books.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trilithon.errors import DoesNotFit


@dataclass(frozen=True, slots=True)
class Entry:
    """What a job holds."""

    tenant: str
    tasks: int
    slots: int


@dataclass
class Ledger:
    """Tasks and slots of the cluster, and how many slots a tenant may use."""

    tasks: int
    slots: int
    quotas: Mapping[str, int] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    # Jobs are changed by several threads; the entries are replaced, never changed, for who reads them.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    @property
    def free_tasks(self) -> int:
        return self.tasks - sum(entry.tasks for entry in self.entries.values())

    @property
    def free_slots(self) -> int:
        return self.slots - sum(entry.slots for entry in self.entries.values())

    def used_by(self, tenant: str) -> int:
        return sum(entry.slots for entry in self.entries.values() if entry.tenant == tenant)

    def reserve(self, job: str, wanted: Entry) -> None:
        """Enters a job, or changes what it holds. Refused with numbers, and then nothing changes."""
        with self._lock:
            others = {name: entry for name, entry in self.entries.items() if name != job}
            replace(self, entries=others).check(job, wanted)
            self.entries = {**self.entries, job: wanted}

    def change(self, job: str, *, tasks: int | None = None, slots: int | None = None) -> None:
        """Changes one of the two numbers that a job holds, under the same conditions."""
        with self._lock:
            found = self.entries[job]
            self.reserve(
                job,
                Entry(
                    found.tenant,
                    found.tasks if tasks is None else tasks,
                    found.slots if slots is None else slots,
                ),
            )

    def release(self, job: str) -> None:
        with self._lock:
            self.entries = {name: entry for name, entry in self.entries.items() if name != job}

    def check(self, job: str, wanted: Entry) -> None:
        """Raises, with numbers, if there is no room for a job beside those that are in the books."""
        if wanted.tasks > self.free_tasks:
            raise DoesNotFit(
                f"{job} needs {wanted.tasks} tasks; free are {self.free_tasks} of {self.tasks}"
                f"{self._held('tasks')}.",
                "Lower an operator's max, end a job, or give the cluster more slots.",
            )
        quota = self.quotas.get(wanted.tenant)
        if quota is not None and self.used_by(wanted.tenant) + wanted.slots > quota:
            raise DoesNotFit(
                f"{job} needs {wanted.slots} slots; the tenant {wanted.tenant} may use {quota} and "
                f"uses {self.used_by(wanted.tenant)}.",
                "Lower the parallelism of its jobs, or raise its quota.",
            )
        if wanted.slots > self.free_slots:
            raise DoesNotFit(
                f"{job} needs {wanted.slots} slots; free are {self.free_slots} of {self.slots}"
                f"{self._held('slots')}.",
                "Lower the parallelism of a job, or raise the cluster's slots.",
            )

    def _held(self, what: str) -> str:
        held = {job: getattr(entry, what) for job, entry in self.entries.items()}
        largest = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:5]
        return f", held by {', '.join(f'{job} ({n})' for job, n in largest)}" if held else ""
