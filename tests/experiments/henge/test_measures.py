"""Our numbers for the paper's figures, each from a run in which the answer can be seen."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.sample_runs import sample_run, under_all
from trilithon.experiments.henge.findings import FINDINGS
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.henge.measures import HENGE, MEASURES
from trilithon.experiments.paper import NothingDecided, Runs, Values
from trilithon.experiments.runs import Floats, Run, RunAction


def act(time_s: float, job: int, reason: str = "RECONFIGURATION") -> RunAction:
    return RunAction(time_s, f"papers/t{job}", reason, True, 15.0)


def lines(length_s: float, jobs: int = 1, round_s: float = 10.0) -> Floats:
    return np.ones((jobs, int(length_s / round_s)))


def values(name: str, run: Run, variant: str = "it") -> Values:
    measured = PAPER.values(name, {variant: under_all(run, PAPER)})
    json.dumps(measured)  # plain numbers
    return measured


def finding(name: str, runs: Runs) -> str:
    """The sentence of a finding, from what the results keep of it."""
    facts = json.loads(json.dumps(dict(FINDINGS[name].measure(runs))))
    return FINDINGS[name].sentence(facts)


def test_juice_is_told_of_the_job_that_is_changed_and_stability_of_all() -> None:
    juice = lines(7200, 2)
    juice[0, 430:560] = 0.9  # from 4310 s to 5600 s
    juice[1, 440:600] = 0.8
    run = sample_run(
        lines(7200, 2),
        (act(1000, 2), act(4500, 1), act(4600, 2)),
        round_s=10,
        policy_from_s=900,
        juice=juice,
    )
    assert values("juice", run) == {
        "juice when it has fallen": pytest.approx(0.9),
        "juice has fallen": 4310,
        "stable again by": 6060,  # the last minute with less in it has gone
        "stable after the first action by": 910,
    }


def test_juice_of_a_run_in_which_nothing_happens_is_missing() -> None:
    measured = values("juice", sample_run(lines(7200), round_s=10, policy_from_s=900))
    assert measured["juice when it has fallen"] is None
    assert measured["stable after the first action by"] is None


@pytest.mark.parametrize(("juice", "words"), [(-1.0, "as in"), (1.0, "unlike in")])
def test_how_juice_and_queue_move_is_said_as_it_is(juice: float, words: str) -> None:
    queue = np.arange(200.0)[None, :]
    run = sample_run(lines(2000), (act(1000, 1),), round_s=10, queue=queue, juice=juice * queue)
    assert words in finding("juice", {"tripled": {HENGE: run}})


def test_a_search_that_never_ends_is_as_long_as_the_run() -> None:
    shares = lines(28_800, 2)
    shares[0, 100:150] = 0.5  # met again from 1510 s on
    shares[1, 200:] = 0.5
    run = sample_run(
        shares, (act(1100, 1), act(1200, 1), act(2500, 2)), round_s=10, policy_from_s=900
    )
    measured = values("diurnal", run)
    assert measured["longest convergence"] == 28_800 - 2500
    assert measured["time of actions over all jobs"] == pytest.approx(45 / 3600)
    assert measured["the same, of all job time"] == pytest.approx(45 / (2 * 28_800))
    shares[1] = 1.0
    run = sample_run(shares, (act(1100, 1), act(1200, 1)), round_s=10, policy_from_s=900)
    assert values("diurnal", run)["longest convergence"] == 1510 - 1100


def test_jobs_are_reduced_by_the_spike_and_not_by_what_was_before() -> None:
    shares = lines(25_200, 3)
    shares[0, :95] = shares[0, 2180:2250] = 0.2
    acts = (
        act(1500, 3, "REDUCTION"),
        act(22_000, 1, "REDUCTION"),
        act(22_100, 1, "REDUCTION"),
        act(22_200, 2, "REDUCTION"),
    )
    measured = values("cpu-spike", sample_run(shares, acts, round_s=10, policy_from_s=900))
    assert measured == {"first converged by": 960, "recovered by": 22_510, "jobs reduced": 2}


def test_actions_while_numbers_are_missing_are_those_from_the_first_to_the_last_second() -> None:
    shares = lines(3600, 2)
    shares[1, 200:] = 0.5
    acts = tuple(act(at_s, 1) for at_s in (1010, 1020, 1370, 1380, 1700))
    measured = values("failure", sample_run(shares, acts, round_s=10, policy_from_s=900))
    assert measured == {
        "actions while numbers are missing": 2,
        "first action after it": 1380,
        "intents met at the end": 1,
    }


def test_a_job_without_any_utility_converges_at_the_end_of_the_run() -> None:
    shares = lines(7200, 3)
    shares[0, :200] = shares[1, :300] = 0.5
    shares[2] = 1e-6
    run = sample_run(shares, round_s=10, policy_from_s=900)
    results = {f"{count}x8": under_all(run, PAPER) for count in (10, 20, 30, 40)}
    measured = MEASURES["more-machines"](results)
    assert measured["median convergence, 10 machines"] == 3010 - 900
    assert measured["jobs that meet their intents, 10 machines"] == pytest.approx(2 / 3)


def test_convergence_of_jobs_with_state_is_told_apart() -> None:
    shares = lines(5400, 2)
    shares[0, :200] = shares[1, :150] = 0.5
    run = sample_run(
        shares, (act(1000, 1), act(1500, 1), act(1200, 2)), round_s=10, policy_from_s=900
    )
    named = {"papers/t1": "papers/stateful1", "papers/t2": "papers/stateless1"}
    run = Run(
        **{
            **vars(run),
            "jobs": tuple(named[job] for job in run.jobs),
            "actions": tuple(
                replace(action, job=named[action.job or ""]) for action in run.actions
            ),
        }
    )
    assert values("stateful", run) == {
        "rounds, stateful": 2,
        "rounds, stateless": 1,
        "convergence, stateful": 2010 - 900,
        "convergence, stateless": 1510 - 900,
        "longer with state": pytest.approx(1110 / 610 - 1),
    }


def test_the_best_reduction_is_the_one_that_keeps_the_most_over_all_runs() -> None:
    results = {}
    for percent, here, there in ((70, 0.8, 0.9), (80, 0.9, 0.9), (90, 0.95, 0.6)):
        for where, share in (("here", here), ("there", there)):
            taken = (act(1000, 1, "REDUCTION"),)
            run = sample_run(share * lines(7200), taken, round_s=10, policy_from_s=900)
            results[f"{percent}% in {where}"] = under_all(run, PAPER)
    name = "the share that neither misses intents nor does too little"
    assert MEASURES["reduction"](results) == {name: 0.8}
    same = {f"{percent}% in there": results["80% in there"] for percent in (70, 80)}
    tie = NothingDecided("Utility is the same with 70.0 % and 80.0 %.")
    assert MEASURES["reduction"](same) == {name: tie}
    idle = under_all(sample_run(lines(7200), round_s=10, policy_from_s=900), PAPER)
    nothing = MEASURES["reduction"]({"80% in there": idle})
    assert nothing == {name: NothingDecided("No run had a Reduction.")}


def test_what_a_job_needs_alone_is_told() -> None:
    results = {
        name: {HENGE: sample_run(share * lines(5400), round_s=10, policy_from_s=900)}
        for name, share in (("alone on 1", 0.25), ("alone on 2", 1.0))
    }
    assert "25.0 % of its utility on one core, and 100.0 % on two" in finding("cost", results)


def test_instances_and_rounds_are_counted_at_the_operator_that_begins_with_too_few() -> None:
    names = [f"{ms}ms-{n}-{f}x" for ms in (50, 60, 70) for n in (5, 10) for f in (1, 2)]
    few = {HENGE: sample_run(lines(4500), (act(1000, 1),), round_s=10)}
    many = {HENGE: sample_run(lines(4500), (act(1000, 1), act(1100, 1)), round_s=10)}
    measured = MEASURES["initial-configuration"](
        {name: many if name == "60ms-5-2x" else few for name in names}
    )
    assert measured["instances from 10, 70 ms"] == 2
    assert measured["rounds from 10, 70 ms"] == 1
    assert measured["rounds at 60 ms, twice the load"] == 2
    assert measured["rounds at 50 ms, twice the load"] == 1


def test_utility_after_arrivals_is_of_those_that_are_there() -> None:
    shares = lines(11 * 3600, 2)
    shares[1] = 0.5
    run = sample_run(shares, round_s=10, policy_from_s=900)
    run = Run(**{**vars(run), "starts_s": np.array([0.0, 8 * 3600.0])})
    queue = np.zeros(shares.shape)
    queue[1, : 8 * 360] = np.nan
    run = Run(**{**vars(run), "lines": {**run.lines, "queue": queue}})
    assert values("more-jobs", run) == {
        "average utility after the arrivals at 2, 4 and 6 h": 10.0,
        "average utility after the arrivals at 8 h": 7.5,
    }


@pytest.mark.parametrize(
    ("strict_s", "lax_s", "when"), [(1000, 1200, "earlier than"), (1300, 1200, "later than")]
)
def test_which_promise_is_blacklisted_first_is_said(
    strict_s: float, lax_s: float, when: str
) -> None:
    results = {
        f"{ms}ms-5-2x": {HENGE: sample_run(lines(4500), (act(at_s, 1, "BLACKLISTED"),))}
        for ms, at_s in ((40, strict_s), (50, lax_s))
    }
    assert f"blacklisted {when} that of 50 ms" in finding("initial-configuration", results)
    never = {name: {HENGE: sample_run(lines(4500))} for name in results}
    assert "is ever blacklisted" in finding("initial-configuration", never)


def test_how_the_production_cluster_ended_is_said() -> None:
    run = sample_run(lines(3600), (act(1000, 1), act(1100, 1), act(1200, 1, "REVERSION")))
    sentence = finding("production", {"it": under_all(run, PAPER)})
    assert "2 × RECONFIGURATION, 1 × REVERSION. The last is REVERSION" in sentence
