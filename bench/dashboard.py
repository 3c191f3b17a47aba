"""How fluid the dashboard stays in a browser: a job of 100 operators with 100 instances each.

    python -m bench.dashboard

prints how long a frame takes while the graph is scrolled and rounds come in, and how long a round
takes to change the page. The browser is the system's Chromium.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.browser import page
from trilithon.model.job import Edge, Job, Operator, Parallelism, Work
from trilithon.scenarios.live import SHOWCASE, live_rules, live_simulation
from trilithon.scenarios.scenario import Scenario, ScheduledJob, load_scenario
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.web_server import serving_in_background
from trilithon.workloads.shapes import Constant, Shape

PATIENCE_S = 60.0
# Scrolls with every frame, and notes how long frames and changes of the page take.
WATCH = """() => {
    window.frames_ms = []; window.changes_ms = [];
    let last = performance.now();
    const frame = (now) => {
        window.frames_ms.push(now - last); last = now;
        document.getElementById("graph-scroll").scrollLeft += 3;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    const note = () => window.changes_ms.push(Number(document.body.dataset.morphMs));
    const refreshed = {attributes: true, attributeFilter: ["data-refreshed"]};
    new MutationObserver(note).observe(document.body, refreshed);
}"""


@dataclass(frozen=True)
class Fluidity:
    operators: int
    instances: int
    frame_p25_ms: float
    frame_ms: float
    frame_p95_ms: float
    change_least_ms: float
    change_ms: float
    page_kb: float


@contextmanager
def served(folder: Path, scenario: Scenario, speed: float) -> Iterator[tuple[Daemon, str]]:
    """A daemon in front of a scenario in real time, with its URL, as soon as it has measures."""
    engine = live_simulation(scenario, speed, 100.0)
    running = daemon(engine, live_rules(scenario), folder, clock=engine, speed=speed)
    with running as controlled, serving_in_background(api(controlled)) as url:
        deadline = time.monotonic() + PATIENCE_S
        while controlled.controller.assessment() is None:
            assert time.monotonic() < deadline, "nothing was measured"
            time.sleep(0.1)
        yield controlled, url


def wide_job(chains: int = 10, long: int = 10, instances: int = 100) -> Job:
    """Chains of operators side by side, each operator with its most instances."""
    like = load_scenario(SHOWCASE).jobs[0].job
    bounds = Parallelism(instances, 1, instances)
    names = [[f"c{i}o{j}" for j in range(long)] for i in range(chains)]
    source, sink = like.sources[0].name, like.sinks[0].name
    edges = [
        Edge(a, b) for chain in names for a, b in zip([source, *chain], [*chain, sink], strict=True)
    ]
    operators = tuple(Operator(name, Work(), bounds) for chain in names for name in chain)
    return replace(like, name="wide", operators=operators, edges=tuple(edges))


def measure(rounds: int = 10) -> Fluidity:
    job = wide_job()
    loads: dict[str, Shape] = {job.sources[0].name: Constant(2000.0)}
    scenario = replace(
        load_scenario(SHOWCASE),
        jobs=(ScheduledJob(job, 0.0, loads),),
        slots=None,
        faults=(),
        policy=None,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder) / "daemon", scenario, 1.0) as (controlled, url),
        page(1440, url=url) as (tab, wrong),
    ):
        path = f"/dashboard/jobs/{job.id}"
        tab.goto(url + path)
        tab.get_by_label("Token").fill(controlled.token)
        tab.get_by_role("button", name="Log in").click()
        tab.wait_for_url(url + path)
        tab.evaluate(WATCH)
        deadline = time.monotonic() + PATIENCE_S
        while tab.evaluate("window.changes_ms.length") < rounds:
            assert time.monotonic() < deadline, "the page does not change"
            tab.wait_for_timeout(200)
        frames = sorted(tab.evaluate("window.frames_ms"))
        changes = tab.evaluate("window.changes_ms")
        operators = tab.locator("svg.graph a").count()
        size = len(tab.content())
        instances = controlled.controller.state.jobs[job.id].wanted.instances
        assert wrong == []
    return Fluidity(
        operators=operators,
        instances=instances,
        frame_p25_ms=frames[len(frames) // 4],
        frame_ms=statistics.median(frames),
        frame_p95_ms=frames[int(0.95 * len(frames))],
        change_least_ms=min(changes),
        change_ms=statistics.median(changes),
        page_kb=size / 1000,
    )


def main() -> None:
    fluidity = measure()
    size = f"page {fluidity.page_kb:.0f} kB"
    print(f"{fluidity.operators} operators, {fluidity.instances:,} instances, {size}")
    print(f"frame: median {fluidity.frame_ms:.1f} ms, p95 {fluidity.frame_p95_ms:.1f} ms")
    print(f"a round changes the page in {fluidity.change_ms:.1f} ms (median)")


if __name__ == "__main__":
    main()
