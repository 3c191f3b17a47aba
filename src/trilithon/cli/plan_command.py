"""Owns the command `plan`: a job's graph, its instances and the tasks that it will hold."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.job_files import Engine, EngineName, LoadedJob, jobs_in
from trilithon.cli.job_graph import draw_graph
from trilithon.cli.output import Format, Output, answer, complain, plural
from trilithon.cli.spark_options import MASTER, SLOTS, TASKS
from trilithon.engines.spark.flush_time import unreachable_constraints
from trilithon.engines.spark.stall import floor_ms, stall_s, unreachable_thresholds
from trilithon.errors import InvalidJob
from trilithon.model.job import Edge, Grouping, Job, NodeKind, Operator
from trilithon.spec.durations import format_duration


def plan_command(
    file: Annotated[Path, typer.Argument(help="A job file.", show_default=False)],
    engine: Engine = EngineName.SPARK,
    output: Output = Format.TABLE,
) -> None:
    """Draw a job and print what it needs. Instances count at its start, tasks while it runs."""
    jobs = jobs_in(file)

    def draw(console: Console) -> None:
        for loaded in jobs:
            draw_plan(loaded.job, console)

    plans = [{**plan(loaded.job), "problems": _problems(loaded, engine)} for loaded in jobs]
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


def plan(job: Job) -> dict[str, Any]:
    """The plan as data."""
    kinds = dict(job.nodes())
    return {
        "job": job.id,
        "instances": job.instances,
        "tasks": job.tasks,
        "batch": format_duration(job.batch_s),
        "stall_ms": round(1000 * stall_s(job.tasks)),
        "floor_p99_ms": round(floor_ms(job, 0.99)),
        "intent": {
            "max_utility": job.intent.max_utility,
            "thresholds": [str(threshold) for threshold in job.intent.thresholds],
            "constraints": [
                f"mean latency ≤ {c.mean_latency_ms:g} ms over {format_duration(c.over_s)} of "
                + ", ".join(str(part) for part in c.sequence)
                for c in job.intent.constraints
            ],
        },
        "nodes": [_node(job, name, kinds[name]) for name in job.order],
        "notes": notes(job),
    }


def _node(job: Job, name: str, kind: NodeKind) -> dict[str, Any]:
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
            "tasks": bounds.max,
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


def notes(job: Job) -> list[str]:
    """Assumptions behind the figures, and what to know before the start."""
    lines = [
        f"Source {source.name!r} does not say its partitions: one reader is counted."
        for source in job.sources
        if source.partitions is None
    ]
    lines += [
        f"Operator {operator.name!r} keeps state: its parallelism is fixed at its first start."
        for operator in job.operators
        if operator.work.stateful
    ]
    lines += unreachable_thresholds(job)
    lines += unreachable_constraints(job)
    if job.tasks > TASKS:
        lines.append(
            f"The default master {MASTER} has {TASKS} task slots: "
            f"start Spark with --master 'local[{job.tasks}]' or more."
        )
    if job.instances > SLOTS:
        lines.append(f"It starts more instances than the default --slots {SLOTS} allows.")
    if not job.intent.thresholds and not job.intent.constraints:
        lines.append("The job has no intent: the controller will do nothing for it.")
    return lines


def draw_plan(job: Job, console: Console) -> None:
    data = plan(job)
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
    readers = sum(source.partitions or 1 for source in job.sources)
    parts = " + ".join([str(readers), *(str(o.parallelism.max) for o in job.operators)])
    total = f"{plural(job.tasks, 'Spark task')} while it runs"
    console.print(f"  holds   {total}: {parts} (readers + operators)", soft_wrap=True)
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


def _sentence(job: Job, node: dict[str, Any]) -> str:
    if node["kind"] == NodeKind.SOURCE:
        return f"reads {', '.join(node['topics'])}"
    reads = _groupings(job.parents[node["name"]])
    if node["kind"] == NodeKind.SINK:
        return f"writes {node['topic']}{reads}"
    state = ", stateful" if node["stateful"] else ""
    does = ", ".join(node["does"]) or "passes on"
    return f"×{node['parallelism']} ({node['min']}–{node['max']})  {does}{state}{reads}"


def _groupings(edges: tuple[Edge, ...]) -> str:
    special = [edge for edge in edges if edge.grouping is not Grouping.SHUFFLE]
    parts = [
        f"{edge.source} by key {', '.join(edge.key)}"
        if edge.grouping is Grouping.BY_KEY
        else f"{edge.source} broadcast"
        for edge in special
    ]
    return f"  ⇐ {'; '.join(parts)}" if parts else ""
