"""Owns the commands `policy …`: which policies there are, and a package for one of your own."""

import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon import plugins
from trilithon.cli.output import Format, Output, answer, message_console, table
from trilithon.errors import FileExists, FileUnwritable, NotFound, NotUnderstood
from trilithon.policies import registry
from trilithon.policies.dhalion import extensions, parts
from trilithon.policies.dhalion.health import HealthPolicy
from trilithon.policies.parameters import ParameterInfo

app = typer.Typer(help="Policies, and how to write your own.", no_args_is_help=True)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """List the policies, the health policies of dhalion and their parts, and packages that cannot
    be loaded.
    """
    problems = plugins.load()
    data = {
        "policies": {name: entry.summary for name, entry in registry.POLICIES.items()},
        "health_policies": {
            name: policy.summary for name, policy in extensions.health_policies().items()
        },
        **{
            kind: {name: parts.summary(part) for name, part in parts.parts(kind).items()}
            for kind in parts.METHODS
        },
        "not_loaded": dict(problems),
    }
    answer(output, data, lambda console: _draw_list(data, console))


def _draw_list(data: dict[str, dict[str, str]], console: Console) -> None:
    titles = {
        "policies": "policies",
        "health_policies": "health policies (`dhalion`, parameter `health`)",
        **{kind: f"{kind} of health policies" for kind in parts.METHODS},
        "not_loaded": "not loaded",
    }
    for key, title in titles.items():
        if data[key]:
            console.print(table(title, ("name", "what it does"), data[key].items()))


@app.command("show")
def show(
    name: Annotated[
        str, typer.Argument(help="A policy, a health policy of dhalion, or a part of one.")
    ],
    output: Output = Format.TABLE,
) -> None:
    """Print the parameters of a policy, the parts of a health policy, or what a part does."""
    plugins.load()
    health = extensions.health_policies()
    if name in registry.POLICIES:
        entry = registry.POLICIES[name]
        described = [_described(info) for info in entry.parameters.describe()]
        data: dict[str, Any] = {"name": name, "summary": entry.summary, "parameters": described}
    elif name in health:
        policy = health[name]
        data = {
            "name": name,
            "summary": policy.summary,
            "detectors": [part.name for part in policy.detectors],
            "diagnosers": [part.name for part in policy.diagnosers],
            "resolvers": [part.name for part in policy.resolvers],
        }
    elif kinds := [kind for kind in parts.METHODS if name in parts.parts(kind)]:
        said = [f"{kind}: {parts.summary(parts.parts(kind)[name])}" for kind in kinds]
        used = [each.name for each in health.values() if _uses(each, name)]
        data = {"name": name, "summary": "; ".join(said), "used_by": used}
    else:
        known = ", ".join((*registry.POLICIES, *health))
        raise NotFound(
            f"No policy is named {name!r}.",
            f"There are: {known}. `trilithon policy list` lists their parts, too.",
        )
    answer(output, data, lambda console: _draw_one(data, console))


def _uses(policy: HealthPolicy, name: str) -> bool:
    return any(part.name == name for kind in parts.METHODS for part in getattr(policy, kind))


def _described(info: ParameterInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "default": info.default,
        "unit": ", ".join(info.options) if info.options else info.unit,
        "meaning": info.meaning,
    }


def _draw_one(data: dict[str, Any], console: Console) -> None:
    console.print(Text(f"{data['name']}: {data['summary']}"), soft_wrap=True)
    if "parameters" in data:
        rows = [tuple(row.values()) for row in data["parameters"]]
        console.print(table(None, ("parameter", "default", "unit or words", "meaning"), rows))
    for key in (*parts.METHODS, "used_by"):
        if data.get(key):
            title = key.replace("_", " ")
            console.print(Text(f"{title}: {', '.join(data[key])}"), soft_wrap=True)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="The name of the health policy, like `headroom`.")],
    into: Annotated[
        Path | None, typer.Option("--into", help="The folder to write; by default the name.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Write a package with a health policy that works, and its test."""
    if not _NAME.fullmatch(name):
        raise NotUnderstood(f"{name!r} is not a name of a policy.", "Use a name like my_policy.")
    folder = into or Path(name)
    files = {folder / path: content for path, content in package(name).items()}
    if there := [path for path in files if path.exists()]:
        raise FileExists(f"{there[0]} exists.", "Choose another folder with --into.")
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise FileUnwritable(
            f"{folder} cannot be written: {error.strerror}.", "Choose another place."
        ) from error
    written = [str(path) for path in files]
    answer(output, {"written": written}, lambda console: console.print("\n".join(written)))
    text = f"Next: pip install -e {folder}, then pytest {folder} and trilithon policy list"
    message_console().print(Text(text, "dim"))


def package(name: str) -> dict[str, str]:
    """The files of a package with a health policy of this name."""
    folder = resources.files("trilithon.cli") / "templates" / "policy"
    title = "".join(part.capitalize() for part in name.split("_"))
    places = {
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        f"src/trilithon_{name}/__init__.py": "policy.py.txt",
        f"tests/test_{name}.py": "test_policy.py.txt",
        "tests/overload.yaml": "overload.yaml.txt",
    }
    return {
        path: (folder / template)
        .read_text(encoding="utf-8")
        .replace("@NAME@", name)
        .replace("@TITLE@", title)
        for path, template in places.items()
    }
