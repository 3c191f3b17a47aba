"""Writes what the code already says: the pages under docs/reference and the JSON Schema."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from trilithon.cli.lazy import LazyCommand
from trilithon.cli.main import app
from trilithon.control.rules import Limits
from trilithon.engines.spark import compiler
from trilithon.errors import EXIT_CODES, error_classes
from trilithon.model import validation
from trilithon.model.columns import TABLES
from trilithon.policies import feedback, registry
from trilithon.policies.parameters import ParameterInfo
from trilithon.service import api, tenant_rules
from trilithon.service.routes.common import API
from trilithon.spec import functions, job_builder, json_schema, kafka_options, result_bounds

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by `make reference` from the code; change it there. -->\n"


def problems() -> str:
    rows = sorted({**validation.CODES, **job_builder.CODES}.items())
    service = sorted(tenant_rules.CODES.items())
    engine = sorted(compiler.CODES.items())
    return (
        f"# Problems and errors\n{NOTE}\n"
        "## In a job file\n\nWhat `trilithon validate` can say of a job file. Each problem comes "
        "with its code, the path in "
        "the file, the line, and how to mend it; codes do not change between versions.\n\n"
        "| code | what is wrong |\n| --- | --- |\n"
        + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in rows)
        + "\n## On Spark\n\nWhat the Spark engine can say of a good job that it "
        "cannot run. It uses the "
        "codes above, too, for what Spark's own parser finds.\n\n"
        "| code | what is wrong |\n| --- | --- |\n"
        + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in engine)
        + "\n## In the service\n\nWhat a daemon can say of a good job that it does not accept.\n\n"
        "| code | what is wrong |\n| --- | --- |\n"
        + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in service)
        + "\n## Errors\n\nHow a command ends, and what the API answers as "
        "`error.code`. A request that "
        "another process refused has the code of that refusal; the exit code "
        "and the status are those "
        "of the code.\n\n| code | exit code | HTTP status | what it is |\n| "
        "--- | --- | --- | --- |\n"
        + "".join(
            f"| `{kind.code}` | {kind.exit_code} | {kind.http_status} | "
            f"{' '.join((kind.__doc__ or '').split())} |\n"
            for kind in error_classes()
        )
    )


def allowed() -> str:
    def listed(names: frozenset[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names)) + "\n"

    return (
        f"# Functions and options\n{NOTE}\n"
        "An expression may call these functions and no others: none of them "
        "calls Java, reads files or "
        "settings, or makes rows. They are Spark's; its documentation tells what each does.\n\n"
        f"## On single rows\n\n{listed(functions.SCALAR - functions.OWN)}\n"
        f"{limits()}"
        f"## On groups, in `aggregate`\n\n{listed(functions.AGGREGATE)}\n"
        f"{keeping()}"
        "## Trilithon's own, for workloads\n\n"
        "A daemon refuses `work` and `wait` (`FUNCTION_NOT_ALLOWED`) unless its administrator "
        "allows them: `workload_functions` in the [service "
        "file](../concepts/security.md#what-a-tenants-jobs-may-use). Without that setting they are "
        "allowed for trying out: on loopback, without tokens and without `tenants`. `trilithon "
        "run` and the simulated cluster's scenarios allow them.\n\n"
        "- `work(ms)`: uses the CPU for that long.\n- `wait(ms)`: waits for that long.\n"
        "- `instance_number()`: the number of the instance that works on the record, from 0. "
        "`wait(CASE WHEN instance_number() = 0 THEN 50 ELSE 10 END)` makes one instance slow.\n\n"
        "## Options of a Kafka source\n\n"
        "Brokers, security and everything else belong to the engine, not to a job.\n\n"
        f"{listed(kafka_options.SOURCE_OPTIONS)}\n"
        f"## Options of a Kafka sink\n\n{listed(kafka_options.SINK_OPTIONS)}"
    )


def keeping() -> str:
    names = ", ".join(f"`{name}`" for name in sorted(functions.KEEPING))
    return (
        f"These keep every value of a group, or every distinct one: {names}. They need a `window` "
        "(`STATE_GROWS`): without one a group lasts for ever, and what they keep would grow with "
        "each record. `approx_percentile`, `approx_count_distinct`, `count` and `max_by` keep "
        "little.\n\n"
    )


def limits() -> str:
    counted = ", ".join(f"`{name}`" for name in sorted({*result_bounds.COUNTS, "sequence"}))
    return (
        "### How much they may make\n\n"
        "All jobs share the memory of a JVM. A call may ask for at most "
        f"{result_bounds.MAX_COUNT:,} characters or elements ({counted}), and all functions "
        f"together may make at most {result_bounds.MAX_BYTES // 2**20} MiB of one record: texts, "
        "lists, structs and maps are added up, inside lambdas too. A constant that asks for more "
        "is refused (`RESULT_TOO_LARGE`); if a column asks for more, its record becomes a dead "
        "letter. The start and step of a `sequence` may be neither random nor contain another "
        "`sequence`. "
        "Numbers in a format of `format_string` count as characters. `from_json` counts each `{` "
        "of a text as a struct with all fields of its type, since it makes one.\n\n"
    )


def columns() -> str:
    text = (
        f"# Columns of a snapshot\n{NOTE}\n"
        "A counter only grows while its incarnation stays the same; a gauge is "
        "what holds at the moment. "
        "What nobody measured is missing, which is not 0. Records that are "
        "broadcast count once per copy, "
        "for the sender and for the receivers alike.\n"
    )
    for table in TABLES:
        text += f"\n## {table.__name__.lower()}\n\n{table.__doc__}\n\n"
        text += "| column | unit | kind | meaning |\n| --- | --- | --- | --- |\n"
        for column in table.describe():
            kind = "counter" if column.counter else "gauge"
            text += f"| `{column.name}` | {column.unit} | {kind} | {column.meaning} |\n"
    return text


def control() -> str:
    text = (
        f"# The controller\n{NOTE}\n"
        "## Limits\n\nUnder `limits` in the file of `trilithon serve --rules`.\n\n"
        + _parameters(Limits.describe())
        + "\n## What the guard says\n\n| code | why something was not granted as asked |\n"
        "| --- | --- |\n"
        + "".join(f"| `{code}` | {why} |\n" for code, why in feedback.CLIP_CODES.items())
    )
    for name, known in registry.POLICIES.items():
        text += f"\n## The policy `{name}`\n\n{known.summary[0].upper()}{known.summary[1:]}.\n\n"
        text += _parameters(known.parameters.describe())
    return text


def http_api() -> str:
    return (
        f"# The API\n{NOTE}\n"
        "`openapi.json` beside this page describes every request and answer, but for what a policy "
        "publishes in its own form (its status and its reports); a daemon serves the "
        f"same document at `{API}{api.DOCUMENT}`. What a permission is, and which role has it, is "
        "told under [Tenants and security](../concepts/security.md).\n\n"
        "| method | address | permission | what it does |\n| --- | --- | --- | --- |\n"
        + "".join(
            f"| {method} | `{path}` | {needed} | {' '.join(what.split())} |\n"
            for method, path, needed, what in api.addresses()
        )
    )


def openapi() -> str:
    return json.dumps(api.document(api.routed_app()), indent=1, ensure_ascii=False) + "\n"


def _default(one: ParameterInfo) -> str:
    """A number, or a word with the others that it could be."""
    if isinstance(one.default, str):
        return f"{one.default} (of {', '.join(one.options)})"
    return f"{one.default:.10g}"


def _parameters(described: Iterable[ParameterInfo]) -> str:
    return "| name | default | unit | meaning |\n| --- | --- | --- | --- |\n" + "".join(
        f"| `{one.name}` | {_default(one)} | {one.unit} | {one.meaning} |\n" for one in described
    )


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, those of groups among them."""
    for name, listed in sorted(group.commands.items()):
        command = listed.loaded if isinstance(listed, LazyCommand) else listed
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    flags = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = [
        f"{p.metavar or p.name.upper()}{'…' if p.nargs == -1 else ''}"
        if p.required
        else f"[{p.metavar or p.name.upper()}]"
        for p in arguments
    ]
    text = f"## `{' '.join(['trilithon', name, *usage])}`\n\n{command.help}\n\n"
    return text + "".join(f"- `{', '.join(flag.opts)}`: {flag.help}\n" for flag in flags) + "\n"


def commands() -> str:
    text = (
        f"# Command line\n{NOTE}\n"
        "Answers go to stdout, messages and progress to stderr. `-o "
        "table|json|yaml` says how an answer "
        "is printed; scripts should use `json`.\n\n"
    )
    text += "".join(
        _command(name, command) for name, command in _commands(typer.main.get_command(app), "")
    )
    text += "## Exit codes\n\n| code | meaning |\n| --- | --- |\n"
    return text + "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())


def files() -> dict[Path, str]:
    """Every file that is written, with its content."""
    reference = ROOT / "docs" / "reference"
    return {
        reference / "problems.md": problems(),
        reference / "functions.md": allowed(),
        reference / "columns.md": columns(),
        reference / "cli.md": commands(),
        reference / "control.md": control(),
        reference / "api.md": http_api(),
        reference / "openapi.json": openapi(),
        ROOT / "src" / "trilithon" / "spec" / json_schema.FILE: json_schema.render(),
    }


def main() -> None:
    for path, content in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
