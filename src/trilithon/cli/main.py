"""Owns the program `trilithon`: the table of its commands, and how an error ends it."""

import io
import os
import sys
from typing import Annotated, ClassVar, Final

import typer

import trilithon
from trilithon.cli.lazy import LazyGroup
from trilithon.cli.state_option import state_option
from trilithon.errors import TrilithonError

# Name → (where the command is, its summary). A summary is the first sentence of the command's own
# help; it stands here so that `--help` imports no command.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": (
        "trilithon.cli.init_command:init_command",
        "Write an example job: YAML, or Python if the name ends in .py.",
    ),
    "validate": (
        "trilithon.cli.validate_command:validate_command",
        "Check job files and print every problem.",
    ),
    "plan": (
        "trilithon.cli.plan_command:plan_command",
        "Draw a job and print what it needs.",
    ),
    "run": (
        "trilithon.cli.run_command:run_command",
        "Run jobs on Spark without a controller and show live figures.",
    ),
    "rescale": (
        "trilithon.cli.rescale_command:rescale_command",
        "Change the parallelism of a running job's operators.",
    ),
    "load": (
        "trilithon.cli.load_command:load_command",
        "Generate load: timestamped JSON records at a given rate.",
    ),
    "peek": (
        "trilithon.cli.peek_command:peek_command",
        "Print the latest records of a topic.",
    ),
    "serve": (
        "trilithon.cli.serve_command:serve_command",
        "Control jobs: observe, decide, act, explain.",
    ),
    "host": (
        "trilithon.cli.host_command:host_command",
        "Run the engine host: Spark and its jobs.",
    ),
    "job": ("trilithon.cli.job_commands:app", "Jobs of the daemon."),
    "cluster": ("trilithon.cli.cluster_commands:app", "The cluster that the daemon controls."),
    "token": ("trilithon.cli.token_commands:app", "Tokens for the daemon's API."),
    "top": (
        "trilithon.cli.top_command:top_command",
        "Show live what jobs do and what the controller decides.",
    ),
    "dashboard": (
        "trilithon.cli.dashboard_command:dashboard_command",
        "Print a link to the dashboard.",
    ),
    "explain": (
        "trilithon.cli.explain_command:explain_command",
        "Explain decisions about a job or the cluster.",
    ),
    "advise": (
        "trilithon.cli.advise_command:advise_command",
        "Print every measure of a recorded snapshot or series.",
    ),
    "policy": ("trilithon.cli.policy_commands:app", "Policies, and how to write your own."),
    "replay": (
        "trilithon.cli.replay_command:replay_command",
        "Replay a policy on a recording: the same bytes every time.",
    ),
    "simulate": (
        "trilithon.cli.simulate_command:simulate_command",
        "Run a scenario on the simulated cluster.",
    ),
    "calibrate": (
        "trilithon.cli.calibrate_command:calibrate_command",
        "Learn from a recorded run what operators cost.",
    ),
    "broker": (
        "trilithon.cli.broker_commands:app",
        "A Kafka broker for one machine: for demos and tests.",
    ),
    "bench": (
        "trilithon.cli.bench_commands:app",
        "Compare the simulated cluster with a real one.",
    ),
    "experiment": ("trilithon.cli.experiment_commands:app", "The papers' experiments."),
}


# The commands that use the state folder have the option --state.
USES_STATE: Final = frozenset(
    "run rescale load peek serve host job cluster token top dashboard explain broker bench "
    "experiment".split()
)


class Commands(LazyGroup):
    table: ClassVar = COMMANDS
    common: ClassVar = USES_STATE
    common_option: ClassVar = state_option


app = typer.Typer(
    name="trilithon",
    cls=Commands,
    help="Intent-driven stream processing on Apache Spark.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"trilithon {trilithon.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Intent-driven stream processing on Apache Spark."""
    del version


def main() -> None:
    """Runs a command; an error becomes a message on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a sign gets something in its place, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except TrilithonError as error:
        from trilithon.cli.output import complain  # noqa: PLC0415 - only an error is worth rich

        complain(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _give_up_stdout()
        sys.exit(1)
    except OSError as error:
        _give_up_stdout()
        sys.stderr.write(f"error: the answer cannot be written: {error.strerror}\n")
        sys.exit(1)


def _give_up_stdout() -> None:
    """What is still in its buffer cannot be written: it must not be tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
