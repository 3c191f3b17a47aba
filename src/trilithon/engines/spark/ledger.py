"""Keeps the ledger of an application: tasks that Spark must hold open, slots that policies divide.

Spark checks its slots at every batch, and a query holds none between two batches: a new job that is
admitted by the live figure can kill a running one. So no query starts without an entry here.

The tasks follow the live executors. When they shrink, entries stay: the jobs that were admitted
wait for room, and no other job is admitted into it. Only jobs that run occupy tasks.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trilithon.errors import DoesNotFit


@dataclass(frozen=True, slots=True)
class Entry:
    """The tasks and slots that a job holds."""

    tenant: str
    tasks: int
    slots: int


@dataclass
class Ledger:
    """The cluster's tasks and slots, the tenants' quotas of slots, and an entry per job."""

    tasks: int
    slots: int
    quotas: Mapping[str, int] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    # The jobs whose queries run or are being started.
    running: frozenset[str] = frozenset()
    # Several threads change jobs. `entries` is replaced, never mutated: reads need no lock.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    @property
    def free_tasks(self) -> int:
        return self.tasks - sum(entry.tasks for entry in self.entries.values())

    @property
    def unoccupied_tasks(self) -> int:
        """The tasks that no running query has: what a job that waits can get."""
        entries = self.entries
        return self.tasks - sum(entries[job].tasks for job in self.running if job in entries)

    @property
    def free_slots(self) -> int:
        return self.slots - sum(entry.slots for entry in self.entries.values())

    def used_by(self, tenant: str) -> int:
        return sum(entry.slots for entry in self.entries.values() if entry.tenant == tenant)

    def reserve(self, job: str, wanted: Entry) -> None:
        """Adds or changes the entry of a job; without room raises `DoesNotFit`, unchanged. What a
        job has already it keeps, even if the cluster has become too small for it.
        """
        with self._lock:
            before = self.entries.get(job, Entry(wanted.tenant, 0, 0))
            others = {name: entry for name, entry in self.entries.items() if name != job}
            replace(self, entries=others).check(job, wanted, before)
            self.entries = {**self.entries, job: wanted}

    def reserve_all(self, wanted: Mapping[str, Entry]) -> None:
        """Adds or changes the entries of all parts of a job, or of none: without room for one of
        them raises `DoesNotFit`, unchanged. Those that give something back come first.
        """
        with self._lock:
            before = self.entries

            def growth(name: str) -> int:
                old = before.get(name)
                return wanted[name].slots - (0 if old is None else old.slots)

            try:
                for name in sorted(wanted, key=growth):
                    self.reserve(name, wanted[name])
            except DoesNotFit:
                self.entries = before
                raise

    def change(self, job: str, *, tasks: int | None = None, slots: int | None = None) -> None:
        """Changes the tasks or the slots of a job, under the same conditions."""
        with self._lock:
            entry = self.entries[job]
            self.reserve(
                job,
                Entry(
                    entry.tenant,
                    entry.tasks if tasks is None else tasks,
                    entry.slots if slots is None else slots,
                ),
            )

    def occupy(self, job: str) -> None:
        """The job's query is about to start; without room on the live executors raises
        `DoesNotFit`.
        """
        with self._lock:
            needed, free = self.entries[job].tasks, self.unoccupied_tasks
            if job not in self.running and needed > free:
                raise DoesNotFit(no_room(needed, free, self.tasks))
            self.running |= {job}

    def vacate(self, job: str) -> None:
        """The job's query has ended; its entry stays."""
        with self._lock:
            self.running -= {job}

    def release(self, job: str) -> None:
        with self._lock:
            self.running -= {job}
            self.entries = {name: entry for name, entry in self.entries.items() if name != job}

    def check(self, job: str, wanted: Entry, before: Entry) -> None:
        """Raises `DoesNotFit`, with the numbers, if there is no room for what a job wants beyond
        what it had before.
        """
        if wanted.tasks > max(before.tasks, self.free_tasks):
            raise DoesNotFit(
                f"{job} needs {wanted.tasks} tasks; {self.free_tasks} of {self.tasks} are free"
                f"{self._holders('tasks')}.",
                "Lower an operator's max, delete a job, or add task slots to the Spark cluster.",
            )
        quota = self.quotas.get(wanted.tenant)
        more_slots = wanted.slots > before.slots
        if quota is not None and more_slots and self.used_by(wanted.tenant) + wanted.slots > quota:
            raise DoesNotFit(
                f"{job} needs {wanted.slots} slots; the tenant {wanted.tenant} has a quota of "
                f"{quota} and uses {self.used_by(wanted.tenant)}.",
                "Lower the parallelism of its jobs, or raise its quota.",
            )
        if more_slots and wanted.slots > self.free_slots:
            raise DoesNotFit(
                f"{job} needs {wanted.slots} slots; {self.free_slots} of {self.slots} are free"
                f"{self._holders('slots')}.",
                "Lower the parallelism of a job, or raise the cluster's slots.",
            )

    def _holders(self, what: str) -> str:
        """The five jobs that hold most."""
        counts = {job: getattr(entry, what) for job, entry in self.entries.items()}
        largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
        return f", held by {', '.join(f'{job} ({n})' for job, n in largest)}" if counts else ""


def no_room(needed: int, free: int, tasks: int) -> str:
    return f"Waits for tasks: needs {needed}, free {free} of {tasks}."
