"""What `make demo` runs: five tenants' jobs on Spark, few slots, one load that doubles, and Henge.

Everything is started here and ended here: broker, Spark, jobs, controller, load. The work of four
jobs is waiting, so that more instances help on two cores as they would on forty. The fifth
computes, and shares the cores with the others. The cluster has as many slots as the jobs begin
with: a job that needs more gets them from another.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

# The first minute belongs to the JVM, which compiles what it runs: until then nobody acts.
WARM_S = 60
CALM_S = 40
DOUBLES = "ads/pageload"
PHASES = ("before", "at worst", "at the end")
INTRODUCTION = """\
Five jobs of five tenants on one Spark application in real-time mode, with {n} slots, all in use.
The work of four jobs is waiting: more instances help on few cores as they would on many.
science/primetester computes and shares the cores with the others; more instances add no cores.
The first start fetches the Kafka jars.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=220, help="after the warm-up")
    arguments.add_argument("--off", action="store_true", help="the controller only looks on")
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="trilithon-demo-") as folder,
        suppress(KeyboardInterrupt),
    ):
        os.environ["TRILITHON_STATE"] = folder
        show(Console(), Path(folder), options)


def show(console: Console, folder: Path, options: argparse.Namespace) -> None:
    from trilithon.cli.output import progress  # noqa: PLC0415 - after the state's folder is set
    from trilithon.engines.spark.application import Setup  # noqa: PLC0415
    from trilithon.experiments import tenants  # noqa: PLC0415
    from trilithon.experiments.henge.henge_paper import QUICK  # noqa: PLC0415
    from trilithon.experiments.henge.measures import HENGE  # noqa: PLC0415
    from trilithon.model.mode import Mode  # noqa: PLC0415
    from trilithon.service.system import running_system  # noqa: PLC0415

    setup = Setup("local[128]", folder / "spark", slots=tenants.slots())
    rules = tenants.rules(HENGE, QUICK, Mode.OFF)
    # So that the plots of who opens the dashboard late have a past.
    rules = replace(rules, limits=replace(rules.limits, series_every_s=5.0))
    console.print(INTRODUCTION.format(n=setup.slots), highlight=False)
    with progress() as tell:
        started = running_system(setup, tenants.jobs(), rules, folder, tell)
        with started as system, dashboard(system.daemon) as link:
            tell("")
            console.print(
                f"The dashboard, for one browser:\n{link}\n", highlight=False, soft_wrap=True
            )
            loads = [tenants.TenantLoad(tenant, load_of(tenant)) for tenant in tenants.TENANTS]
            with tenants.load_generators(system.kafka, loads, WARM_S + options.seconds + 60):
                phases = watch(console, system, options.seconds, acts=not options.off)
    summarise(console, phases, off=options.off)


@contextmanager
def dashboard(daemon: Any) -> Iterator[str]:
    """Serves the dashboard beside the demo; a link that logs a browser in."""
    from trilithon.service.api import api  # noqa: PLC0415
    from trilithon.service.dashboard.log_in import owner_link  # noqa: PLC0415
    from trilithon.service.web_server import serving_in_background  # noqa: PLC0415

    app = api(daemon)
    with serving_in_background(app) as url:
        yield url + owner_link(app)


def load_of(tenant: Any) -> dict[str, Any]:
    """The usual load; that of one job doubles after a while."""
    if tenant.job.id != DOUBLES:
        return {"rate": tenant.per_s}
    return {
        "rate": tenant.per_s,
        "shape": "step",
        "peak": 2 * tenant.per_s,
        "period": f"{WARM_S + CALM_S}s",
    }


def watch(
    console: Console, system: Any, seconds: int, *, acts: bool
) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """The live view with what was decided; the figures of each phase."""
    from trilithon.cli import live  # noqa: PLC0415
    from trilithon.experiments.tenants import UtilitySample, max_utility  # noqa: PLC0415
    from trilithon.model.mode import Mode  # noqa: PLC0415

    before, worst, end = PHASES
    began, since_s, shares = time.monotonic(), time.time(), dict[str, float]()
    phases: dict[str, tuple[Mapping[str, Any], ...]] = {}
    with Live(console=console, auto_refresh=False, transient=False) as shown:
        while (passed := time.monotonic() - began) < WARM_S + seconds:
            sample = UtilitySample.of(passed, system.look(), max_utility())
            if acts and passed > WARM_S:
                acts = False
                for job in sample.jobs:
                    system.daemon.commands.mode(job["job"], Mode.AUTO)
                shown.console.print(line(passed, "cluster", "Henge controls the jobs from now on."))
            doubled = passed >= WARM_S + CALM_S
            phase = worst if doubled else before
            if not doubled or sample.satisfaction <= shares.get(worst, 1.0):
                phases[phase], shares[phase] = sample.jobs, sample.satisfaction
            for decision in system.decided(since_s):
                since_s = decision.time_s
                if passed > WARM_S:
                    shown.console.print(line(passed, decision.job or "cluster", decision.sentence))
            head = Text(
                f"\n{passed:3.0f} s  {note(passed)}; utility of all jobs {sample.utility:.1f} of "
                f"{sample.max_utility:g}",
                "dim",
            )
            shown.update(Group(head, live.draw_brief(sample.jobs)), refresh=True)
            time.sleep(1)
    phases[end] = sample.jobs
    return phases


def line(passed: float, job: str, sentence: str) -> Table:
    """A decision in three columns, so that a long sentence stays in its own."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=5, justify="right")
    grid.add_column(width=19, style="bold")
    grid.add_column()
    grid.add_row(f"{passed:.0f} s", job, Text(sentence))
    return grid


def note(passed: float) -> str:
    if passed < WARM_S:
        return "the JVM warms up"
    twice = passed >= WARM_S + CALM_S
    return f"{DOUBLES} gets {'twice its' if twice else 'its'} usual load"


def summarise(
    console: Console, phases: Mapping[str, Sequence[Mapping[str, Any]]], *, off: bool
) -> None:
    from trilithon.cli.live import slots  # noqa: PLC0415
    from trilithon.cli.output import table  # noqa: PLC0415

    figures = {name: {job["job"]: job for job in jobs} for name, jobs in phases.items()}
    rows: list[tuple[Any, ...]] = []
    for name, last in figures[PHASES[-1]].items():
        worth = [figures.get(phase, {}).get(name, {}).get("utility") for phase in PHASES]
        first = figures.get(PHASES[0], {}).get(name, last)
        rows.append((name, last.get("max_utility"), *worth, f"{slots(first)} → {slots(last)}"))
    totals = [sum(row[i] or 0.0 for row in rows) for i in range(1, 5)]
    rows.append(("all", *totals, ""))
    console.print()
    console.print(table("utility", ("job", "of", *PHASES, "slots"), rows))
    prefix = "The controller was off. " if off else ""
    after = f"“At worst” is the lowest utility after the load of {DOUBLES} doubled."
    console.print(f"\n{prefix}{after}", highlight=False)


if __name__ == "__main__":
    main()
