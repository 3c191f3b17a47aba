"""Owns the command `plan`: a job's graph, its instances and the tasks that it will hold."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.engine_name import EngineName
from trilithon.cli.job_files import Engine, LoadedJob, jobs_in
from trilithon.cli.job_graph import draw_graph
from trilithon.cli.output import Format, Output, answer, complain, plural
from trilithon.cli.spark_options import MASTER, SLOTS, TASKS
from trilithon.engines.spark.constraint_floor import ConstraintFloor, constraint_floors
from trilithon.engines.spark.cuts import Part, cut_into_parts
from trilithon.engines.spark.held_tasks import tasks_at_start
from trilithon.engines.spark.stall import (
    floor_ms,
    stall_s,
    stalled_tasks,
    unreachable_thresholds,
)
from trilithon.errors import InvalidJob
from trilithon.model.intent import EdgeName
from trilithon.model.job import Edge, Grouping, Job, NodeKind, Operator
from trilithon.spec.durations import format_duration


def plan_command(
    file: Annotated[Path, typer.Argument(help="A job file.", show_default=False)],
    engine: Engine = EngineName.SPARK,
    output: Output = Format.TABLE,
) -> None:
    """Draw a job and print what it needs."""
    jobs = jobs_in(file)

    def draw(console: Console) -> None:
        for loaded in jobs:
            draw_plan(loaded.job, console, engine)

    plans = [{**plan(loaded.job, engine), "problems": _problems(loaded, engine)} for loaded in jobs]
    answer(output, plans[0] if len(plans) == 1 else plans, draw)
    refusals = [error for loaded in jobs if (error := loaded.refusal(engine)) is not None]
    for error in refusals:
        complain(error)
    if refusals:
        raise typer.Exit(InvalidJob.exit_code)


def _problems(loaded: LoadedJob, engine: EngineName) -> list[dict[str, Any]]:
    """What the engine would refuse of the job."""
    refusal = loaded.refusal(engine)
    return [] if refusal is None else [asdict(problem) for problem in refusal.problems]


def plan(job: Job, engine: EngineName = EngineName.SPARK) -> dict[str, Any]:
    """The plan as data. The parts are Spark's: the simulated cluster runs a job as a whole."""
    kinds, parts, pausing = dict(job.nodes()), _parts(job, engine), _pausing(job, engine)
    return {
        "job": job.id,
        "instances": job.instances,
        "tasks": _tasks(job, engine),
        "max_tasks": _most_tasks(job, engine),
        "batch": format_duration(job.batch_s),
        "stall_ms": round(1000 * stall_s(pausing)),
        "floor_p99_ms": round(floor_ms(job, 0.99, pausing)),
        "intent": {
            "max_utility": job.intent.max_utility,
            "thresholds": [str(threshold) for threshold in job.intent.thresholds],
            "constraints": [
                f"mean latency ≤ {c.mean_latency_ms:g} ms over {format_duration(c.over_s)} of "
                + ", ".join(str(part) for part in c.sequence)
                for c in job.intent.constraints
            ],
            "floors": [floor.to_json() for floor in _floors(job, engine)],
        },
        "nodes": [_node(job, name, kinds[name], engine) for name in job.order],
        "parts": [_part(part) for part in parts],
        "notes": notes(job, engine),
    }


def _parts(job: Job, engine: EngineName) -> tuple[Part, ...]:
    return cut_into_parts(job).parts if engine is EngineName.SPARK else ()


def _tasks(job: Job, engine: EngineName) -> int:
    """The tasks that the job holds at its start."""
    return sum(part.tasks for part in _parts(job, engine)) or job.tasks


def _most_tasks(job: Job, engine: EngineName) -> int:
    """The tasks that the job holds with all its instances."""
    return sum(part.most_tasks for part in _parts(job, engine)) or job.tasks


def _growing(job: Job, engine: EngineName) -> tuple[Operator, ...]:
    """The operators that hold fewer tasks at the start than they may."""
    if engine is not EngineName.SPARK:
        return ()
    return tuple(o for o in job.operators if tasks_at_start(o) < o.tasks)


def _floors(job: Job, engine: EngineName) -> tuple[ConstraintFloor, ...]:
    """The least mean latency of each constraint on Spark."""
    return constraint_floors(job) if engine is EngineName.SPARK else ()


def _pausing(job: Job, engine: EngineName) -> int:
    """The tasks that pause together between two batches."""
    return stalled_tasks(job) if engine is EngineName.SPARK else job.tasks


def _part(part: Part) -> dict[str, Any]:
    """One query of the job on Spark; the edges into and out of it that topics carry."""
    return {
        "operators": [operator.name for operator in part.operators],
        "reads": [str(cut.edge.name) for cut in part.reads],
        "writes": [str(cut.edge.name) for cut in part.writes],
        "tasks": part.tasks,
        "max_tasks": part.most_tasks,
    }


def _node(job: Job, name: str, kind: NodeKind, engine: EngineName) -> dict[str, Any]:
    node: dict[str, Any] = {
        "name": name,
        "kind": kind.value,
        "inputs": [
            {
                "from": e.source,
                "grouping": e.grouping.value,
                **({"key": list(e.key)} if e.key else {}),
            }
            for e in job.parents[name]
        ],
    }
    if kind is NodeKind.SOURCE:
        source = next(s for s in job.sources if s.name == name)
        node |= {"topics": list(source.topics), "tasks": source.partitions or 1}
    elif kind is NodeKind.SINK:
        node["topic"] = next(s for s in job.sinks if s.name == name).topic
    else:
        operator = job.operator(name)
        bounds = operator.parallelism
        node |= {
            "parallelism": bounds.initial,
            "min": bounds.min,
            "max": bounds.max,
            "tasks": tasks_at_start(operator) if engine is EngineName.SPARK else operator.tasks,
            "max_tasks": operator.tasks,
            "fixed": operator.work.stateful or name in job.bounds.fixed,
            "does": _does(operator),
            "stateful": operator.work.stateful,
        }
    return node


def _does(operator: Operator) -> list[str]:
    work = operator.work
    parts = {
        "join": work.join,
        "where": work.where,
        "explode": work.explode,
        "select": work.select,
        "deduplicate": work.deduplicate,
        "group by": work.group_by,
        "window": work.window,
        "aggregate": work.aggregate,
    }
    return [name for name, value in parts.items() if value]


def notes(job: Job, engine: EngineName = EngineName.SPARK) -> list[str]:
    """Assumptions behind the figures, and what to know before the start."""
    lines = [
        f"Source {source.name!r} does not say its partitions: one reader is counted."
        for source in job.sources
        if source.partitions is None
    ]
    lines += [
        f"Operator {operator.name!r} keeps state: its parallelism is fixed while it runs."
        for operator in job.operators
        if operator.work.stateful
    ]
    lines += [
        f"Operator {o.name!r} holds {tasks_at_start(o)} tasks at the start and may grow to "
        f"{o.tasks}: up to {plural(tasks_at_start(o), 'instance')} while records flow, beyond by "
        "a restart with more tasks. `tasks: all` holds all of them from the start."
        for o in _growing(job, engine)
    ]
    lines += unreachable_thresholds(job, _pausing(job, engine))
    lines += [str(floor) for floor in _floors(job, engine) if floor.unreachable]
    lines += _unmeasured(job)
    if (tasks := _tasks(job, engine)) > TASKS:
        lines.append(
            f"The default master {MASTER} has {TASKS} task slots: "
            f"start Spark with --master 'local[{tasks}]' or more."
        )
    elif (most := _most_tasks(job, engine)) > TASKS:
        lines.append(
            f"The default master {MASTER} has {TASKS} task slots: to grow to {most} tasks, start "
            f"Spark with --master 'local[{most}]' or more."
        )
    if job.instances > SLOTS:
        lines.append(f"It starts more instances than the default --slots {SLOTS} allows.")
    if not job.intent.thresholds and not job.intent.constraints:
        lines.append("The job has no intent: the controller will do nothing for it.")
    return lines


def _unmeasured(job: Job) -> Iterator[str]:
    """A sentence for each constraint that ends with an edge into a sink."""
    sinks = {sink.name for sink in job.sinks}
    for constraint in job.intent.constraints:
        last = constraint.sequence[-1]
        if isinstance(last, EdgeName) and last.target in sinks:
            yield (
                f"The constraint on {', '.join(constraint.steps)} is not measured: no engine "
                f"measures the way into a sink. Let it end with {last.source!r}; a threshold on "
                "latency bounds the whole way from the origin of a record to its sink."
            )


def draw_plan(job: Job, console: Console, engine: EngineName = EngineName.SPARK) -> None:
    data = plan(job, engine)
    nodes = {node["name"]: node for node in data["nodes"]}
    console.print(Text.assemble((job.id, "bold"), f"  priority {job.intent.priority:g}"))
    console.print()
    width = max(len(name) for name in nodes)
    for rails, name in draw_graph(job):
        line = Text(f"  {rails}  " if name else f"  {rails.rstrip()}", style="cyan")
        if name is not None:
            line.append(f"{name:<{width}}  ", style="bold")
            line.append(_sentence(job, nodes[name]), style="none")
        console.print(line, soft_wrap=True)
    console.print()
    for threshold in data["intent"]["thresholds"]:
        console.print(f"  wants   {threshold}")
    for constraint in data["intent"]["constraints"]:
        console.print(f"  wants   {constraint}", soft_wrap=True)
    console.print(f"  needs   {plural(job.instances, 'instance')} at the start (slots)")
    _draw_tasks(job, console, engine)
    console.print(
        f"  commits every {data['batch']} (the length of a batch, not the latency)", soft_wrap=True
    )
    floor = data["floor_p99_ms"]
    effect = f"p99 at least {floor} ms" if floor else "p99 unaffected"
    console.print(
        f"  pauses  about {data['stall_ms']} ms every {data['batch']} ({effect})", soft_wrap=True
    )
    for note in data["notes"]:
        console.print(Text(f"  note    {note}", style="dim"), soft_wrap=True)


def _draw_tasks(job: Job, console: Console, engine: EngineName) -> None:
    parts, most = _parts(job, engine), _most_tasks(job, engine)
    when = f"at the start, up to {most}" if _growing(job, engine) else "while it runs"
    total = f"{plural(_tasks(job, engine), 'Spark task')} {when}"
    if len(parts) <= 1:
        readers = sum(source.partitions or 1 for source in job.sources)
        growing = {o.name for o in _growing(job, engine)}
        counts = (
            f"{tasks_at_start(o)}–{o.tasks}" if o.name in growing else str(o.tasks)
            for o in job.operators
        )
        tasks = " + ".join([str(readers), *counts])
        console.print(f"  holds   {total}: {tasks} (readers + operators)", soft_wrap=True)
        return
    sizes = " + ".join(_size(part) for part in parts)
    console.print(f"  holds   {total}: {sizes} (one query per part)", soft_wrap=True)
    for part in parts:
        line = " → ".join(operator.name for operator in part.operators)
        word = "task" if part.most_tasks == 1 else "tasks"
        console.print(f"  part    {line}: {_size(part)} {word}, {part.readers} of them read")
    topics = plural(sum(len(part.writes) for part in parts), "internal topic")
    console.print(f"  links   the parts by {topics}, one for each edge between them")


def _size(part: Part) -> str:
    """The tasks of a part, as in `6` or `6–18`."""
    return f"{part.tasks}–{part.most_tasks}" if part.tasks < part.most_tasks else str(part.tasks)


def _sentence(job: Job, node: dict[str, Any]) -> str:
    if node["kind"] == NodeKind.SOURCE:
        return f"reads {', '.join(node['topics'])}"
    reads = _groupings(job.parents[node["name"]])
    if node["kind"] == NodeKind.SINK:
        return f"writes {node['topic']}{reads}"
    state = ", stateful" if node["stateful"] else ""
    does = ", ".join(node["does"]) or "passes on"
    bounds = "fixed" if node["fixed"] else f"{node['min']}–{node['max']}"
    return f"×{node['parallelism']} ({bounds})  {does}{state}{reads}"


def _groupings(edges: tuple[Edge, ...]) -> str:
    special = [edge for edge in edges if edge.grouping is not Grouping.SHUFFLE]
    parts = [
        f"{edge.source} by key {', '.join(edge.key)}"
        if edge.grouping is Grouping.BY_KEY
        else f"{edge.source} broadcast"
        for edge in special
    ]
    return f"  ⇐ {'; '.join(parts)}" if parts else ""
