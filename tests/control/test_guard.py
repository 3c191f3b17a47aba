"""The guard: whatever a policy asks for, what is granted keeps every bound,
and asked and granted are told.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import START_S, chain
from trilithon.control.guard import Guard, Ruling
from trilithon.control.instance_limits import LoadSigns
from trilithon.control.rules import Limits, QuietHours, Rules
from trilithon.errors import InvalidPolicy
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import (
    BatchingChange,
    JobRestart,
    MachinesAddition,
    MachinesRemoval,
    ParallelismChange,
    Proposal,
)
from trilithon.model.job import Bounds, Job
from trilithon.model.layout import Layout
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import CLIP_CODES
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span

JOB = chain()
CALM = LoadSigns({"o0": 0.1, "o1": 0.1}, 0.0)


def standing(job: Job = JOB, **change: object) -> JobStatus:
    status = JobStatus(
        job.id,
        job.tenant,
        Allocation(job.id, 3, {"o0": 4, "o1": 4}),
        START_S - 1000,
        spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
    )
    return replace(status, **change)  # type: ignore[arg-type]


def scene(
    *statuses: JobStatus,
    now_s: float = START_S,
    slots: int | None = 100,
    unseen: Mapping[str, int] | None = None,
) -> Scene:
    how = {**dict.fromkeys(Ability, How.LIVE), Ability.BATCHING: How.NOT_AT_ALL}
    used = sum(status.allocation.instances for status in statuses)
    return Scene(
        1,
        Series((Snapshot.empty(now_s, Layout.build([])),)),
        {status.job: status for status in statuses},
        Cluster(Capabilities(how, slots), slots, used, unseen=unseen or {}),
    )


def asks(*changes: Proposal, job: str | None = JOB.id) -> Decision:
    return Decision("1", job, changes, "WHY", "Because.")


def wants(o0: int = 4, o1: int = 4, job: str = JOB.id) -> ParallelismChange:
    return ParallelismChange(job, {"o0": o0, "o1": o1})


def review(
    decision: Decision,
    status: JobStatus | None = None,
    signs: LoadSigns = CALM,
    guard: Guard | None = None,
    job: Job = JOB,
    **scenery: object,
) -> Ruling:
    guard = guard or Guard(Rules(limits=Limits(down_delay_s=0.0)))
    where = scene(status or standing(), **scenery)  # type: ignore[arg-type]
    [ruling] = guard.review(where, [decision], {JOB.id: job}, {JOB.id: signs})
    return ruling


def granted(ruling: Ruling) -> dict[str, int] | None:
    """What the job of the tests has after it; None if nothing changes."""
    if not ruling.granted:
        return None
    [change] = ruling.granted
    assert isinstance(change, ParallelismChange)
    return {"o0": 4, "o1": 4, **change.parallelism}


def codes(ruling: Ruling) -> list[str]:
    return [clip.code for clip in ruling.clips]


def test_several_changes_of_parallelism_in_a_decision_are_limited_together() -> None:
    """Each was limited on its own once: the job got 14 instances where it may have 10."""
    small = replace(JOB, bounds=Bounds(max_instances=10))
    changes = ParallelismChange(JOB.id, {"o0": 6}), ParallelismChange(JOB.id, {"o1": 8})
    ruling = review(asks(*changes), job=small)
    assert (granted(ruling), codes(ruling)) == ({"o0": 6, "o1": 4}, ["JOB_MAXIMUM"])
    last_wins = ParallelismChange(JOB.id, {"o0": 5}), ParallelismChange(JOB.id, {"o0": 6})
    assert granted(review(asks(*last_wins), slots=10)) == {"o0": 6, "o1": 4}


@pytest.mark.parametrize("removal_first", [False, True])
def test_slots_that_a_raise_takes_and_a_removed_machine_brings_are_not_given_twice(
    removal_first: bool,
) -> None:
    """Each was checked against the slots at the beginning of the round once."""
    where = scene(standing(), slots=12)
    layout = Layout.build([], machines=("m0", "m1", "m2"))
    capabilities = replace(
        where.cluster.capabilities, machine_slots=dict.fromkeys(("m0", "m1", "m2"), 4)
    )
    where = replace(
        where,
        series=Series((Snapshot.empty(START_S, layout),)),
        cluster=replace(where.cluster, capabilities=capabilities),
    )
    decisions = [asks(wants(6, 4)), asks(MachinesRemoval(("m2",)), job=None)]
    if removal_first:
        decisions.reverse()
    rulings = Guard(Rules()).review(where, decisions, {JOB.id: JOB}, {JOB.id: CALM})
    assert [bool(ruling.granted) for ruling in rulings] == [True, False]
    assert codes(rulings[1])[0] == "SLOTS"


def test_what_keeps_every_bound_is_granted_as_asked() -> None:
    ruling = review(asks(wants(6, 3)))
    assert granted(ruling) == {"o0": 6, "o1": 3}
    assert ruling.clips == ()


@pytest.mark.parametrize(
    ("asked", "change", "signs", "expected", "code"),
    [
        (
            wants(9),
            {"spans": {"o0": Span(1, 6), "o1": Span(1, 8)}},
            CALM,
            {"o0": 6, "o1": 4},
            "MAXIMUM",
        ),
        (
            wants(1),
            {"spans": {"o0": Span(3, 8), "o1": Span(1, 8)}},
            CALM,
            {"o0": 3, "o1": 4},
            "MINIMUM",
        ),
        (
            wants(20),
            {"spans": {"o0": Span(1, 30), "o1": Span(1, 8)}},
            CALM,
            {"o0": 8, "o1": 4},
            "STEP",
        ),
        (wants(1), {}, CALM, {"o0": 2, "o1": 4}, "STEP"),
        (wants(5), {"fixed": frozenset({"o0"})}, CALM, None, "FIXED"),
        (wants(5), {"mode": Mode.OFF}, CALM, None, "MODE_OFF"),
        (wants(5), {"mode": Mode.ADVISE}, CALM, None, "ADVICE_ONLY"),
        (wants(5), {"in_flight": True}, CALM, None, "IN_FLIGHT"),
        (wants(5), {"hold_reason": "METRICS_MISSING"}, CALM, None, "METRICS_MISSING"),
        (wants(3), {}, LoadSigns({"o0": 0.95}, 0.0), None, "SATURATED"),
        (wants(3), {}, LoadSigns({"o0": None}, 0.0), None, "SATURATED"),
        (wants(3), {}, LoadSigns({"o0": 0.1}, 6.0), None, "BACKLOG"),
        (wants(3), {}, LoadSigns({"o0": 0.1}, None), None, "BACKLOG"),
    ],
)
def test_what_is_asked_is_clipped_and_the_reason_told(
    asked: ParallelismChange,
    change: dict[str, object],
    signs: LoadSigns,
    expected: dict[str, int] | None,
    code: str,
) -> None:
    ruling = review(asks(asked), standing(JOB, **change), signs)
    assert granted(ruling) == expected
    assert code in codes(ruling)
    assert all(str(clip) for clip in ruling.clips)


def test_raising_is_allowed_where_lowering_is_not() -> None:
    assert granted(review(asks(wants(5)), signs=LoadSigns({"o0": 1.0}, 100.0))) == {
        "o0": 5,
        "o1": 4,
    }


def test_the_job_the_tenant_and_the_cluster_have_limits_of_their_own() -> None:
    small = replace(JOB, bounds=Bounds(max_instances=10))
    ruling = review(asks(wants(6, 6)), job=small)
    assert (granted(ruling), codes(ruling)) == ({"o0": 6, "o1": 4}, ["JOB_MAXIMUM"])
    ruling = review(asks(wants(6, 6)), slots=11)
    assert (granted(ruling), codes(ruling)) == ({"o0": 6, "o1": 5}, ["SLOTS"])
    guard = Guard(Rules(quotas={"ads": 9}))
    ruling = review(asks(wants(6, 6)), guard=guard)
    assert (granted(ruling), set(codes(ruling))) == ({"o0": 5, "o1": 4}, {"QUOTA"})
    # A job that is being replaced has no standing, and its quota all the same.
    ruling = review(asks(wants(6, 6)), guard=guard, unseen={"ads": 1})
    assert (granted(ruling), set(codes(ruling))) == (None, {"QUOTA"})


def test_a_job_above_a_limit_may_stay_and_shrink_but_not_grow() -> None:
    guard = Guard(Rules(quotas={"ads": 3}, limits=Limits(down_delay_s=0.0)))
    assert granted(review(asks(wants(5)), guard=guard)) is None
    assert granted(review(asks(wants(3)), guard=guard)) == {"o0": 3, "o1": 4}


def test_slots_given_to_one_job_are_not_given_to_the_next() -> None:
    other = chain("other")
    two = [standing(), standing(other)]
    decisions = [asks(wants(8)), asks(wants(8, job=other.id), job=other.id)]
    guard = Guard(Rules())
    rulings = guard.review(scene(*two, slots=18), decisions, {JOB.id: JOB, other.id: other}, {})
    assert [granted(ruling) for ruling in rulings] == [{"o0": 6, "o1": 4}, None]


def test_slots_that_a_job_gives_back_are_free_in_the_next_round_only() -> None:
    other = chain("other")
    two = [standing(), standing(other)]
    decisions = [asks(wants(2)), asks(wants(8, job=other.id), job=other.id)]
    guard = Guard(Rules(limits=Limits(down_delay_s=0.0)))
    rulings = guard.review(
        scene(*two, slots=16), decisions, {JOB.id: JOB, other.id: other}, {JOB.id: CALM}
    )
    assert [granted(ruling) for ruling in rulings] == [{"o0": 2, "o1": 4}, None]


def test_only_the_first_action_on_a_job_in_a_round_is_granted() -> None:
    ruling = review(asks(wants(5), JobRestart(JOB.id)))
    assert len(ruling.granted) == 1
    assert codes(ruling) == ["SUPERSEDED"]


def test_fewer_must_be_wished_for_as_long_as_the_delay_and_the_highest_wish_counts() -> None:
    guard = Guard(Rules(limits=Limits(down_delay_s=30.0)))
    results = [
        granted(review(asks(wants(wish)), guard=guard, now_s=START_S + 10 * i))
        for i, wish in enumerate([2, 3, 2, 2, 2])
    ]
    assert results == [None, None, None, {"o0": 3, "o1": 4}, {"o0": 3, "o1": 4}]


@pytest.mark.parametrize("busy", [None, 1.0])
def test_a_saturated_operator_is_lowered_only_where_that_limit_is_off(busy: float | None) -> None:
    """The capacity is the highest of an instance over a while: after an overload it says little."""
    signs = LoadSigns({"o0": busy, "o1": 0.1}, 0.0)
    limited, off = (
        Guard(Rules(limits=Limits(down_delay_s=0.0, saturated=share))) for share in (0.9, 1.0)
    )
    assert codes(review(asks(wants(3)), signs=signs, guard=limited)) == ["SATURATED"]
    assert granted(review(asks(wants(3)), signs=signs, guard=off)) == {"o0": 3, "o1": 4}


def test_without_a_delay_every_wish_for_fewer_is_granted_at_once() -> None:
    """The wish of the round before is of the past, though it was for more instances."""
    guard = Guard(Rules(limits=Limits(down_delay_s=0.0)))
    first = granted(review(asks(wants(3)), guard=guard))
    fewer = standing(allocation=Allocation(JOB.id, 4, {"o0": 3, "o1": 4}))
    second = granted(review(asks(wants(2)), fewer, guard=guard, now_s=START_S + 10))
    assert (first, second) == ({"o0": 3, "o1": 4}, {"o0": 2, "o1": 4})


def test_a_wish_for_fewer_that_is_not_repeated_is_forgotten() -> None:
    guard = Guard(Rules(limits=Limits(down_delay_s=30.0)))
    for i, wish in enumerate([3, 3, 4, 3, 3]):
        assert granted(review(asks(wants(wish)), guard=guard, now_s=START_S + 10 * i)) is None


def test_what_the_engine_cannot_do_is_not_asked_of_it() -> None:
    batched = BatchingChange(JOB.id, {JOB.edges[0].name: 5.0})
    ruling = review(asks(batched, wants(5)))
    assert [(clip.facet, clip.code) for clip in ruling.clips] == [("batching", "CANNOT")]
    assert granted(ruling) == {"o0": 5, "o1": 4}


def test_cool_down_and_quiet_hours_hold_a_job() -> None:
    guard = Guard(Rules(limits=Limits(cool_down_s=30.0), quiet=(QuietHours.of("22:00-06:00"),)))
    day, night = 12 * 3600.0, 23 * 3600.0
    assert guard.hold(standing(), day) == ""
    assert guard.hold(standing(changed_s=day - 29), day) == "COOL_DOWN"
    assert guard.hold(standing(changed_s=day - 30), day) == ""
    assert guard.hold(standing(), night) == "QUIET_HOURS"
    machines = asks(MachinesAddition(1), job=None)
    assert codes(review(machines, guard=guard, now_s=night)) == ["QUIET_HOURS"]
    assert len(review(machines, guard=guard, now_s=day).granted) == 1


@pytest.mark.parametrize("text", ["22-06", "24:00-06:00", "22:00–06:00", ""])
def test_hours_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(InvalidPolicy):
        QuietHours.of(text)


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 1439))
def test_hours_hold_what_lies_between_their_ends_over_midnight_too(a: int, b: int, at: int) -> None:
    hours = QuietHours(60.0 * a, 60.0 * b)
    expected = at in range(a, b) if a <= b else at in range(a, 1440) or at in range(b)
    assert (60.0 * at in hours) is expected
    assert (60.0 * at + 5 * 86_400 in hours) is expected


@pytest.mark.parametrize(
    "data",
    [
        {"limit": {}},
        {"limits": 3},
        {"limits": {"cool_down": 3}},
        {"limits": {"cool_down_s": -1}},
        {"quotas": {"ads": -1}},
        {"quotas": {"ads": True}},
        {"mode": "on"},
        {"quiet_hours": "22:00"},
        {"seed": 1.5},
        {"quiet_hours": ["25:00-26:00"]},
    ],
)
def test_rules_that_cannot_be_meant_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicy):
        Rules.of(data)


def test_rules_are_read_from_data() -> None:
    read = Rules.of(
        {
            "limits": {"cool_down_s": 5},
            "quotas": {"ads": 3},
            "quiet_hours": ["22:00-06:00"],
            "mode": "advise",
            "policy": "threshold",
            "parameters": {"room": 0.4},
            "seed": 7,
        }
    )
    assert (read.limits.cool_down_s, read.quotas, read.mode) == (5, {"ads": 3}, Mode.ADVISE)
    assert read.quiet == (QuietHours(79_200.0, 21_600.0),)


counts = st.integers(1, 12)


@given(
    asked=st.tuples(counts, counts),
    now=st.tuples(counts, counts),
    spans=st.tuples(counts, counts, counts, counts),
    slots=st.none() | st.integers(0, 40),
    quota=st.none() | st.integers(0, 40),
    most=st.none() | st.integers(1, 30),
    busy=st.none() | st.floats(0, 1),
    backlog=st.none() | st.floats(0, 20),
    fixed=st.sets(st.sampled_from(["o0", "o1"])),
    mode=st.sampled_from(list(Mode)),
)
def test_nothing_that_is_granted_breaks_a_bound(
    asked: tuple[int, int],
    now: tuple[int, int],
    spans: tuple[int, int, int, int],
    slots: int | None,
    quota: int | None,
    most: int | None,
    busy: float | None,
    backlog: float | None,
    fixed: set[str],
    mode: Mode,
) -> None:
    bounds = {"o0": Span(*sorted(spans[:2])), "o1": Span(*sorted(spans[2:]))}
    before = dict(zip(("o0", "o1"), now, strict=True))
    status = standing(
        allocation=Allocation(JOB.id, 3, before), spans=bounds, fixed=frozenset(fixed), mode=mode
    )
    limits = Limits(down_delay_s=0.0)
    guard = Guard(Rules(limits=limits, quotas={} if quota is None else {"ads": quota}))
    job = replace(JOB, bounds=Bounds(max_instances=most))
    signs = LoadSigns({"o0": busy, "o1": busy}, backlog)
    ruling = review(asks(wants(*asked)), status, signs, guard, job, slots=slots)
    assert set(codes(ruling)) <= set(CLIP_CODES)
    if not ruling.granted:
        return
    [change] = ruling.granted
    assert isinstance(change, ParallelismChange)
    after = {**before, **change.parallelism}
    assert mode is Mode.AUTO
    grown = sum(after.values()) - sum(before.values())
    for limit in (slots, quota, most):
        assert grown <= 0 or limit is None or sum(after.values()) <= limit
    for name, had in before.items():
        if after[name] == had:
            continue
        assert name not in fixed
        wish = asked[int(name[1])]
        # It goes towards what was asked, and past it only to come into the bounds.
        assert (after[name] > had) == (wish > had)
        assert after[name] >= min(had, wish, bounds[name].max)
        assert after[name] <= max(had, wish, bounds[name].min)
        if after[name] > had:
            assert after[name] <= bounds[name].max
        else:
            assert after[name] >= bounds[name].min
            assert busy is not None
            assert busy < limits.saturated
            assert backlog is not None
            assert backlog <= limits.backlog_s


def test_clips_name_the_job_where_a_decision_is_about_several() -> None:
    other = chain("other")
    decision = asks(wants(5), wants(99, job=other.id))
    guard = Guard(Rules())
    jobs = {JOB.id: JOB, other.id: other}
    [ruling] = guard.review(scene(standing(), standing(other)), [decision], jobs, {})
    assert {clip.job for clip in ruling.clips} == {other.id}
    assert all(str(clip).startswith(f"{other.id}: o0: asked 99") for clip in ruling.clips)
