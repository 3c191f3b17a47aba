"""Learning from a recording, and the comparison with it: tried on
recordings whose truth is known.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.engines.simulated.worlds import ASSUMED, line, operator
from trilithon.cli.main import app
from trilithon.contract.engine import Reallocate
from trilithon.engines.simulated.arrivals import EVEN_CV2
from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.errors import InvalidRecording, InvalidScenario
from trilithon.model.allocation import initial
from trilithon.model.columns import Instances, Machines
from trilithon.model.job import Grouping, Job, Parallelism
from trilithon.model.layout import Layout
from trilithon.model.profile import Distribution
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.recording import parquet
from trilithon.scenarios import calibration
from trilithon.scenarios.compare import RunPhase, compare
from trilithon.scenarios.rounds import ObservedRounds
from trilithon.workloads.shapes import StepChange

TRUTH = replace(
    line(
        operator("first", 1, service_ms=0.5, cpu_share=1.0, selectivity=0.5),
        operator(
            "second",
            1,
            service_ms=6.0,
            service_cv=0.7,
            distribution=Distribution.GAMMA,
            cpu_share=0.25,
        ),
    ),
    batch_s=30.0,
)


def recorded(character: Character, *, rescale: bool, job: Job = TRUTH) -> Series:
    """A run with a step of load, and one rescale, of which nothing is known but its reports."""
    engine = SimulatedEngine(
        [MachineSpec("m0", 8.0, 8e9)],
        character,
        ASSUMED,
        mode=SimulationMode.EVENTS,
        seed=77,
        arrival_cv2=EVEN_CV2,
    )
    bare = replace(job, operators=tuple(replace(o, profile=None) for o in job.operators))
    assert engine.submit(job, initial(job)).changed
    engine.feed(job.id, "in", StepChange(150.0, 480.0, 40.0))
    looking = ObservedRounds(engine, 1.0)
    looking.observer.series = Series(())
    for second in range(1, 161):
        engine.advance(1.0)
        if rescale and second == 80:
            wanted = initial(job).rescaled({"second": 2}).next_generation()
            assert engine.apply(Reallocate(wanted)).changed
        looking.round()
    return Series(tuple(replace(s, jobs={job.id: bare}) for s in looking.series.snapshots))


@pytest.fixture(scope="module")
def series() -> Series:
    return recorded(replace(SPARK_RTM, transit_s=0.007, fetch_s=0.003), rescale=True)


def test_profiles_and_transport_are_found_again(series: Series) -> None:
    calibrated = calibration.calibrate(series, "a run")
    first, second = (calibrated.profiles[TRUTH.id][name] for name in ("first", "second"))
    assert first.service_ms == pytest.approx(0.5, rel=0.05)
    assert first.selectivity == pytest.approx(0.5, rel=0.05)
    assert first.cpu_share == pytest.approx(1.0, abs=0.02)
    assert second.service_ms == pytest.approx(6.0, rel=0.05)
    assert second.service_cv == pytest.approx(0.7, rel=0.1)
    assert second.cpu_share == pytest.approx(0.25, abs=0.02)
    assert second.learned
    assert calibrated.character.transit_s == pytest.approx(0.007, rel=0.05)
    assert calibrated.character.fetch_s == pytest.approx(0.003, rel=0.1)
    assert calibrated.character.stall_s == pytest.approx(SPARK_RTM.stall_s, rel=0.5)


def with_tasks(job: Job, tasks: int) -> Job:
    bounds = Parallelism(1, 1, tasks)
    return replace(job, operators=tuple(replace(o, parallelism=bounds) for o in job.operators))


def test_what_a_task_costs_shows_in_runs_with_few_and_many_tasks() -> None:
    truth = replace(SPARK_RTM, thread_cores=0.03, constant_load=0.4)
    runs = [recorded(truth, rescale=False, job=with_tasks(TRUTH, n)) for n in (4, 16, 40)]
    calibrated = calibration.calibrate(runs[0], "runs", others=runs[1:])
    assert "thread_cores" in calibrated.measured
    assert calibrated.character.thread_cores == pytest.approx(0.03, rel=0.05)
    assert calibrated.character.constant_load == pytest.approx(0.4, abs=0.03)
    # From one run it cannot be told; what is known is taken off the constant load.
    alone = calibration.calibrate(runs[2], "a run", base=truth)
    assert "thread_cores" not in alone.measured
    assert alone.character.constant_load == pytest.approx(0.4, abs=0.03)


def test_a_calibration_is_kept_and_read_again(series: Series, tmp_path: Path) -> None:
    calibrated = calibration.calibrate(series, "a run")
    path = tmp_path / "calibration.yaml"
    calibration.save_calibration(path, calibrated)
    assert calibration.load_calibration(path) == calibrated
    path.write_text("format: something\n", encoding="utf-8")
    with pytest.raises(InvalidScenario):
        calibration.load_calibration(path)


def test_the_same_run_simulated_agrees_with_its_recording(series: Series) -> None:
    rows = compare(series, ASSUMED, seed=5)
    assert [row.metric for row in rows] == [
        "throughput (records/s)",
        "mean latency (ms)",
        "busiest operator",
        "recovery 1 (s)",
    ]
    assert all(row.holds for row in rows), [(r.metric, r.real, r.simulated) for r in rows]


def test_a_part_of_a_run_is_compared_by_itself(series: Series) -> None:
    rows = compare(
        series, ASSUMED, seed=5, parts=[RunPhase("low", 5, 40), RunPhase("none", 900, 990)]
    )
    by_metric = {row.metric: row for row in rows}
    low = by_metric["throughput (records/s), low"]
    assert isinstance(low.real, float)
    assert low.real == pytest.approx(75, rel=0.1)  # half of 150
    assert low.holds
    assert by_metric["mean latency (ms), low"].holds
    assert by_metric["throughput (records/s), none"].holds is None


def test_a_run_is_compared_from_when_its_jobs_are_there(series: Series) -> None:
    nothing = Snapshot.empty(series.snapshots[0].time_s - 5, Layout.build([]))
    rows = compare(Series((nothing, *series.snapshots)), ASSUMED, seed=5)
    assert rows == compare(series, ASSUMED, seed=5)
    with pytest.raises(InvalidRecording):
        compare(Series(series.snapshots[:2]), ASSUMED)


def test_a_run_that_is_not_the_same_is_found_out(series: Series) -> None:
    wrong = calibration.calibrate(series, "a run")
    slower = {
        TRUTH.id: {
            name: replace(profile, service_ms=2 * (profile.service_ms or 0.0))
            for name, profile in wrong.profiles[TRUTH.id].items()
        }
    }
    rows = compare(series, ASSUMED, replace(wrong, profiles=slower))
    assert False in {row.holds for row in rows}


def test_the_commands_learn_and_compare(series: Series, tmp_path: Path) -> None:
    recording, learned = tmp_path / "run.parquet", tmp_path / "learned.yaml"
    parquet.write_series(recording, series.snapshots)
    run = CliRunner()
    done = run.invoke(app, ["calibrate", str(recording), "--into", str(learned), "-o", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["engine"]["transit_s"] == pytest.approx(0.007, rel=0.05)
    shown = run.invoke(
        app, ["bench", "sim-vs-spark", str(recording), "--calibration", str(learned)]
    )
    assert shown.exit_code == 0
    assert "recovery 1" in shown.stdout
    assert "NO" not in shown.stdout


def test_a_file_from_before_a_number_was_learned_is_still_read(
    series: Series, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.yaml"
    calibration.save_calibration(path, calibration.calibrate(series, "a run"))
    kept = [line for line in path.read_text().splitlines() if "state_s" not in line]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    assert calibration.load_calibration(path).character.state_s == SPARK_RTM.state_s


@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.1])
def test_how_keys_are_spread_is_found_again(zipf: float) -> None:
    keyed = replace(operator("count", 4, service_ms=0.1, zipf=zipf))
    job = line(operator("split", 1, service_ms=0.1), keyed)
    by_key = tuple(
        replace(edge, grouping=Grouping.BY_KEY, key=("word",)) if edge.target == "count" else edge
        for edge in job.edges
    )
    job = replace(job, edges=by_key)
    assumed = replace(ASSUMED, keys=calibration.KEYS)
    engine = SimulatedEngine(
        [MachineSpec("m0", 8.0, 8e9)], SPARK_RTM, assumed, mode=SimulationMode.FLUID
    )
    assert engine.submit(job, initial(job)).changed
    engine.feed(job.id, "in", StepChange(400.0, 400.0, 1.0))
    looking = ObservedRounds(engine, 1.0)
    looking.observer.series = Series(())
    for _ in range(60):
        engine.advance(1.0)
        looking.round()
    bare = replace(job, operators=tuple(replace(o, profile=None) for o in job.operators))
    calibrated = calibration.calibrate(
        Series(tuple(replace(s, jobs={job.id: bare}) for s in looking.series.snapshots)), "a run"
    )
    learned = calibrated.profiles[job.id]["count"].zipf
    assert learned == pytest.approx(zipf, abs=0.05)
    assert calibrated.profiles[job.id]["split"].zipf is None


def snapshot_of(cpu_s: float, busy: tuple[float, ...], at_s: float, instances: int) -> Snapshot:
    """A job of some instances that have computed so long together, on hosts that are this busy."""
    job = line(operator("work", instances))
    machines = [f"host{i // 2}/{i}" for i in range(len(busy))]
    layout = Layout.build([job], machines=machines)
    return replace(
        Snapshot.empty(at_s, layout),
        instances=Instances.of(
            instances, incarnation=[0.0] * instances, cpu_s=[cpu_s / instances] * instances
        ),
        machines=Machines.of(len(busy), cores=[4.0] * len(busy), cores_busy=busy),
        jobs={job.id: job},
    )


def test_constant_load_is_what_computes_beside_the_instances_once_per_host() -> None:
    """Two executors on a host each tell of all of it. Instances that
    go take their counts with them.
    """
    snapshots = [snapshot_of(0.8 * second, (1.5, 1.5), float(second), 4) for second in range(11)]
    snapshots += [
        snapshot_of(0.2 * second, (0.9, 0.9), float(second), 1) for second in range(11, 22)
    ]
    free = replace(SPARK_RTM, thread_cores=0.0)
    calibrated = calibration.calibrate(Series(tuple(snapshots)), "a run", free)
    assert calibrated.character.constant_load == pytest.approx(0.7)
