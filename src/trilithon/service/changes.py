"""Carries out what callers change of jobs: checks it, does it whole or not at all, and audits it.

A dry run goes the same way up to the point where something would be written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trilithon.control.journal.rows import DesiredState
from trilithon.control.spec_changes import Impact
from trilithon.errors import InvalidJob, JobEnding, NeedsNewCheckpoint, Problem, VersionConflict
from trilithon.model.job import Job, tenant_of
from trilithon.model.mode import Mode
from trilithon.service.access.roles import Caller
from trilithon.service.daemon import Daemon
from trilithon.service.tenant_rules import tenant_problems
from trilithon.spec.dump import dump_job
from trilithon.spec.job_builder import build_job


@dataclass(frozen=True)
class Precondition:
    """What a caller expects of the job: a generation of it (`If-Match`), or that there is none."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, name: str, generation: int | None) -> None:
        if self.if_none_match is not None and generation is not None:
            raise VersionConflict(f"There is a job {name!r} already.", "Leave out If-None-Match.")
        if self.if_match is None:
            return
        wanted = {tag.strip().removeprefix("W/").strip('"') for tag in self.if_match.split(",")}
        if generation is None or not wanted & {str(generation), "*"}:
            now = "it does not exist" if generation is None else f"its generation is {generation}"
            raise VersionConflict(
                f"The job {name!r} is not as expected: {now}.",
                "Read it again, and repeat the change with its new ETag.",
            )


class JobChanges:
    """The changes of one caller."""

    def __init__(self, daemon: Daemon, caller: Caller) -> None:
        self._daemon, self._caller = daemon, caller

    def apply(
        self,
        tenant: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        mode: Mode | None = None,
        anew: bool = False,
        expected: Precondition | None = None,
        dry_run: bool = False,
        action: str = "job applied",
    ) -> dict[str, Any]:
        """Accepts a job, or a new version of it. The same version again changes nothing."""
        job = build_job({"tenant": tenant, "name": name, **spec})
        if job.id != f"{tenant}/{name}":
            hint = "Write the same tenant and name in both."
            raise InvalidJob(
                [Problem("NAME_MISMATCH", "name", f"The spec is of {job.id!r}.", hint)], job.id
            )
        settings, owner_only = self._daemon.settings, self._daemon.owner_only
        if problems := tuple(tenant_problems(job, settings, owner_only=owner_only)):
            raise InvalidJob(problems, job.id, " for its tenant")
        if problems := tuple(self._daemon.unsupported(job)):
            raise InvalidJob(problems, job.id, " on this engine")
        commands = self._daemon.commands
        with self._daemon.controller.lock:
            before = self._state(job.id)
            (expected or Precondition()).check(
                job.id, None if before is None else before["generation"]
            )
            if dry_run:
                return self._planned(job, before, anew=anew)
            accepted = commands.apply(job, mode, anew=anew)
            after = self._state(job.id)
        self._daemon.wake()
        if before != after:
            recorded = {**(after or {}), "told": accepted.message}
            self._audit(action, job.id, _spec_of(before, after), recorded)
        return {
            "job": job.id,
            "generation": accepted.generation,
            "impact": accepted.plan.impact.value,
            "told": accepted.message,
            "dry_run": False,
        }

    def set_intent(
        self,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        action: str,
        *,
        expected: Precondition | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Applies the running version with another intent: the job goes on meanwhile."""
        with self._daemon.controller.lock:
            record = self._daemon.commands.record(name)
            spec = dump_job(record.job)
            spec["intent"] = change(dict(spec.get("intent", {})))
            return self.apply(
                record.job.tenant,
                record.job.name,
                spec,
                expected=expected,
                dry_run=dry_run,
                action=action,
            )

    def command(
        self,
        name: str,
        action: str,
        change: Callable[[str], None],
        *,
        expected: Precondition | None = None,
        dry_run: bool = False,
    ) -> None:
        """Pauses, resumes, deletes or sets the mode of a job."""
        # The next round may be so fast that the job is gone before it can be shown.
        with self._daemon.controller.lock:
            before = self._state(name)
            record = self._daemon.commands.record(name)
            (expected or Precondition()).check(name, record.version.generation)
            if dry_run:
                if record.desired is DesiredState.DELETE and action != "job deleted":
                    raise JobEnding(f"{name} is being deleted.", "Submit it again when it is gone.")
                return
            change(name)
            after = self._state(name)
        self._daemon.wake()
        if before != after:
            self._audit(action, name, _without_spec(before), _without_spec(after))

    def _planned(self, job: Job, before: dict[str, Any] | None, *, anew: bool) -> dict[str, Any]:
        plan = self._daemon.commands.plan(job)
        if before is not None and before["desired"] == DesiredState.DELETE:
            raise JobEnding(f"{job.id} is being deleted.", "Submit it again when it is gone.")
        message = str(plan)
        if plan.impact is Impact.ANEW and not anew:
            message += f" {NeedsNewCheckpoint.code}: it is accepted only with `anew`."
        return {
            "job": job.id,
            "generation": before and before["generation"],
            "impact": plan.impact.value,
            "told": message,
            "dry_run": True,
        }

    def _state(self, name: str) -> dict[str, Any] | None:
        """What a caller can change of a job; None if there is no such job."""
        record = self._daemon.controller.state.jobs.get(name)
        if record is None:
            return None
        return {
            "generation": record.version.generation,
            "mode": record.mode.value,
            "desired": record.desired.value,
            "resumed_s": record.resumed_s,
            "spec": dump_job(record.job),
        }

    def _audit(self, action: str, job: str, before: Any, after: Any) -> None:
        self._daemon.access.store.audit(self._caller, action, tenant_of(job), job, before, after)


def _without_spec(state: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if state is None else {k: v for k, v in state.items() if k != "spec"}


def _spec_of(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any] | None:
    """The state before; its spec only if that has changed."""
    if before is None or after is None or before["spec"] != after["spec"]:
        return before
    return _without_spec(before)
