"""Carries out the commands of job owners: submit a job or a new version, delete, pause, resume, set
a mode.

A command is written to the journal and answered at once; the next round carries it out.
"""

from dataclasses import dataclass, replace

from trilithon.control.journal import Journal
from trilithon.control.journal.rows import DesiredState, SpecRow, SpecStatus
from trilithon.control.loop import Controller
from trilithon.control.spec_changes import Impact, Plan, compare, running_form
from trilithon.control.state import ControllerState, JobRecord, Version
from trilithon.errors import JobEnding, NeedsNewCheckpoint, NotFound
from trilithon.model.allocation import carried_over, initial
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.recording.snapshots import job_from_json, job_to_json


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The answer to a submitted job: its generation, and what the new version does to the running
    one.
    """

    job: str
    generation: int
    plan: Plan
    message: str


class JobCommands:
    """The commands of job owners, for one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def _state(self) -> ControllerState:
        return self._controller.state

    @property
    def _journal(self) -> Journal:
        return self._controller.journal

    def plan(self, job: Job) -> Plan:
        """What submitting this version would do, without doing it."""
        record = self._state.jobs.get(job.id)
        if record is None or record.desired is DesiredState.DELETE:
            return Plan((), new=True)
        return replace(
            compare(record.job, job_from_json(job_to_json(job))), failed=_failure(record)
        )

    def apply(self, job: Job, mode: Mode | None = None, *, anew: bool = False) -> Acceptance:
        """Accepts a job, or a new version. A version that cannot continue from the checkpoint of
        the one before is refused unless `anew`.
        """
        # As the journal gives it back, so that memory and journal agree to the last digit.
        job = job_from_json(job_to_json(job))
        with self._controller.lock:
            record = self._state.jobs.get(job.id)
            if record is None:
                return self._first(job, mode or self._controller.rules.mode)
            if record.desired is DesiredState.DELETE:
                raise JobEnding(f"{job.id} is being deleted.", "Submit it again when it is gone.")
            plan = replace(compare(record.job, job), failed=_failure(record))
            if plan.impact is Impact.NONE:
                if mode is not None and mode is not record.mode:
                    self.mode(job.id, mode)
                return Acceptance(job.id, record.version.generation, plan, str(plan))
            if plan.impact is Impact.ANEW and not anew:
                raise NeedsNewCheckpoint(
                    f"This version of {job.id} cannot continue from its checkpoint. {plan}",
                    "To start it with a new checkpoint, use --anew.",
                )
            return self._next(record, job, plan, mode)

    def _first(self, job: Job, mode: Mode) -> Acceptance:
        now_s = self._controller.clock.now_s()
        spec, generation = self._journal.last_generations(job.id)
        version = Version(spec + 1, job, f"g{spec + 1}" if spec else "", now_s, SpecStatus.WANTED)
        wanted = replace(initial(job), generation=generation + 1)
        message = "The job is new; the next round starts it."
        self._journal.accept(job, _row(version), wanted, mode, now_s, message)
        self._state.jobs[job.id] = JobRecord(
            version=version,
            last_spec=version.generation,
            desired=DesiredState.RUN,
            mode=mode,
            accepted_s=now_s,
            wanted=wanted,
            last_generation=wanted.generation,
        )
        return Acceptance(job.id, version.generation, Plan((), new=True), message)

    def _next(self, record: JobRecord, job: Job, plan: Plan, mode: Mode | None) -> Acceptance:
        now_s = self._controller.clock.now_s()
        before = record.version
        generation = record.last_spec + 1
        version = Version(
            generation,
            job,
            f"g{generation}" if plan.impact is Impact.ANEW else before.checkpoint,
            now_s,
            before.status if plan.impact is Impact.LIVE else SpecStatus.WANTED,
        )
        wanted = replace(carried_over(record.wanted, job), generation=record.next_generation())
        self._journal.accept(job, _row(version), wanted, mode or record.mode, now_s, str(plan))
        record.version, record.last_spec, record.wanted = version, generation, wanted
        record.mode, record.desired = mode or record.mode, DesiredState.RUN
        record.healthy_since_s, record.tries, record.try_at_s = None, 0, 0.0
        if running_form(before.job) != version.form:
            record.accepted = record.started_s = None
        elif record.failed:
            self._start_again(job.id, record)
        return Acceptance(job.id, generation, plan, str(plan))

    def delete(self, job: str) -> None:
        self._wish(job, DesiredState.DELETE)

    def pause(self, job: str) -> None:
        """Stops the job and keeps its checkpoint."""
        self._wish(job, DesiredState.PAUSE)

    def resume(self, job: str) -> None:
        """Starts a job again that was paused or has failed, from its checkpoint."""
        with self._controller.lock:
            self._wish(job, DesiredState.RUN)
            if (record := self.record(job)).failed:
                self._start_again(job, record)

    def _start_again(self, job: str, record: JobRecord) -> None:
        now_s = self._controller.clock.now_s()
        self._journal.resume(job, now_s)
        record.resumed_s, record.tries, record.try_at_s = now_s, 0, 0.0

    def _wish(self, job: str, wish: DesiredState) -> None:
        with self._controller.lock:
            record = self.record(job)
            if record.desired is DesiredState.DELETE and wish is not DesiredState.DELETE:
                raise JobEnding(f"{job} is being deleted.", "Submit it again when it is gone.")
            if record.desired is not wish:
                self._journal.wish(job, wish, self._controller.clock.now_s())
                record.desired, record.tries, record.try_at_s = wish, 0, 0.0

    def mode(self, job: str, mode: Mode) -> None:
        with self._controller.lock:
            record = self.record(job)
            if record.mode is not mode:
                self._journal.mode(job, mode, self._controller.clock.now_s())
                record.mode = mode

    def record(self, job: str) -> JobRecord:
        if (record := self._state.jobs.get(job)) is None:
            # It names no other jobs: they may be those of other tenants.
            raise NotFound(f"There is no job {job!r}.", "`trilithon job list` lists them.")
        return record


def _failure(record: JobRecord) -> str:
    """Why a job has failed, with the remedy; empty if it has not."""
    return record.problem if record.failed else ""


def _row(version: Version) -> SpecRow:
    return SpecRow(
        job=version.job.id,
        generation=version.generation,
        body=job_to_json(version.job),
        checkpoint=version.checkpoint,
        accepted_s=version.accepted_s,
        status=version.status,
        message="",
    )
