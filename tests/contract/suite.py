"""What every engine must do, whatever it runs on: one suite, inherited by a test class per engine.

A class gives the fixture `engine`; jobs come from `job`, and `patience_s`
is how long a report may take.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest

from trilithon.contract.engine import (
    Ability,
    Engine,
    How,
    Reallocate,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Edge as Stream
from trilithon.model.job import Field, HeldTasks, Job, Operator, Parallelism, Sink, Source, Work
from trilithon.model.report import Report


class EngineContract:
    patience_s = 0.0

    @pytest.fixture
    def job(self) -> Job:
        """A chain that every engine can run: one source, two operators, one sink."""
        return Job(
            tenant="ads",
            name="chain",
            sources=(Source("in", (Field("v", "BIGINT"),), (("subscribe", "chain-in"),), 1),),
            operators=(
                Operator("first", Work(where="v >= 0"), Parallelism(1, 1, 4)),
                Operator("second", Work(select=("v + 1 AS v",)), Parallelism(1, 1, 4)),
            ),
            edges=(Stream("in", "first"), Stream("first", "second"), Stream("second", "out")),
            sinks=(Sink("out", (("topic", "chain-out"),)),),
        )

    @pytest.fixture
    def running(self, engine: Engine, job: Job) -> Job:
        assert engine.submit(job, initial(job)).status is Status.DONE
        return job

    def reports(self, engine: Engine, until: Callable[[list[Report]], bool]) -> list[Report]:
        """The reports up to one that makes the condition true, or as many as patience allows."""
        reports: list[Report] = []
        deadline = time.monotonic() + self.patience_s
        while True:
            reports += engine.reports()
            if until(reports) or time.monotonic() > deadline:
                return reports
            time.sleep(0.1)

    def test_a_job_that_runs_already_is_not_started_twice(
        self, engine: Engine, running: Job
    ) -> None:
        assert engine.submit(running, initial(running)).status is Status.UNCHANGED

    def test_a_job_that_does_not_fit_is_refused_with_numbers(
        self, engine: Engine, job: Job
    ) -> None:
        huge = replace(
            job,
            operators=(
                replace(job.operators[0], parallelism=Parallelism(1, 1, 200, HeldTasks.ALL)),
                job.operators[1],
            ),
        )
        outcome = engine.submit(huge, initial(huge))
        assert outcome.status is Status.REFUSED
        assert outcome.code == "DOES_NOT_FIT"
        assert "205" in outcome.message
        # It left nothing behind: the same name can be used.
        assert engine.submit(job, initial(job)).status is Status.DONE

    def test_a_newer_allocation_is_done_and_the_same_again_changes_nothing(
        self, engine: Engine, running: Job
    ) -> None:
        wider = Allocation(running.id, 2, {"first": 3, "second": 2})
        assert engine.apply(Reallocate(wider)).status is Status.DONE
        assert engine.apply(Reallocate(wider)).status is Status.UNCHANGED
        assert engine.apply(Reallocate(initial(running))).status is Status.UNCHANGED
        assert engine.apply(
            Reallocate(replace(wider, generation=3, parallelism={"first": 1, "second": 1}))
        ).changed

    @pytest.mark.parametrize(
        "parallelism",
        [{"first": 5, "second": 1}, {"first": 1}, {"first": 1, "second": 1, "third": 1}],
    )
    def test_an_allocation_that_cannot_be_is_refused_whole(
        self, engine: Engine, running: Job, parallelism: dict[str, int]
    ) -> None:
        outcome = engine.apply(Reallocate(Allocation(running.id, 2, parallelism)))
        assert outcome.status is Status.REFUSED
        assert outcome.code
        assert outcome.message
        # Nothing of it was done: the generation is still free.
        assert engine.apply(
            Reallocate(Allocation(running.id, 2, {"first": 2, "second": 1}))
        ).changed

    def test_an_action_on_an_unknown_job_is_refused(self, engine: Engine) -> None:
        for action in (
            Reallocate(Allocation("no/body", 1, {"a": 1})),
            RestartJob("1", "no/body"),
            RestartInstance("2", "no/body", "a", 0),
        ):
            assert engine.apply(action).status is Status.REFUSED

    def test_a_one_shot_action_is_done_once(self, engine: Engine, running: Job) -> None:
        action = RestartJob("only-once", running.id)
        expected = (
            Status.REFUSED
            if engine.capabilities().of(Ability.RESTART_JOB) is How.NOT_AT_ALL
            else Status.DONE
        )
        assert engine.apply(action).status is expected
        if expected is Status.DONE:
            assert engine.apply(action).status is Status.UNCHANGED

    def test_a_cancelled_job_is_gone(self, engine: Engine, running: Job) -> None:
        assert engine.cancel(running.id).status is Status.DONE
        assert engine.cancel(running.id).status is Status.UNCHANGED
        assert (
            engine.apply(Reallocate(Allocation(running.id, 9, {"first": 1, "second": 1}))).status
            is Status.REFUSED
        )
        assert engine.submit(running, initial(running)).status is Status.DONE

    def test_a_job_that_was_ended_for_a_while_can_be_started_again(
        self, engine: Engine, running: Job
    ) -> None:
        assert engine.cancel(running.id, keep=True).status is Status.DONE
        assert engine.jobs() == {}
        assert engine.cancel(running.id, keep=True).status is Status.UNCHANGED
        assert engine.submit(running, initial(running)).status is Status.DONE
        assert engine.cancel(running.id).status is Status.DONE
        assert engine.submit(running, initial(running), "another").status is Status.DONE

    def test_what_was_accepted_can_be_asked_for(self, engine: Engine, running: Job) -> None:
        wider = Allocation(running.id, 5, {"first": 2, "second": 2})
        assert engine.apply(Reallocate(wider)).changed
        jobs = engine.jobs()
        assert set(jobs) == {running.id}
        assert jobs[running.id].job == running
        assert jobs[running.id].allocation == wider
        assert jobs[running.id].health == "running"
        engine.cancel(running.id)
        assert engine.jobs() == {}

    def test_reports_speak_of_the_job_and_follow_each_other(
        self, engine: Engine, running: Job
    ) -> None:
        def spoken(reports: list[Report]) -> bool:
            return any(key[0] == running.id for report in reports for key in report.instance_keys)

        reports = self.reports(engine, spoken)
        assert spoken(reports)
        reports += self.reports(engine, lambda more: len(more) >= 2)
        sequences = defaultdict(list)
        for report in reports:
            sequences[report.sender].append(report.sequence)
        for sequence in sequences.values():
            assert sequence == sorted(set(sequence))

    def test_capabilities_name_every_ability(self, engine: Engine) -> None:
        capabilities = engine.capabilities()
        assert set(capabilities.how) == set(Ability)
        assert capabilities.of(Ability.PARALLELISM) is not How.NOT_AT_ALL
        assert capabilities.slots is None or capabilities.slots > 0

    def test_closing_twice_does_nothing_the_second_time(self, engine: Engine) -> None:
        engine.close()
        engine.close()
