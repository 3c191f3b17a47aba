"""Owns the commands `token …`: who may call the daemon's API."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.client import client
from trilithon.cli.output import Format, Listing, Output, answer, message_console
from trilithon.spec.durations import parse_seconds

app = typer.Typer(help="Tokens for the daemon's API.", no_args_is_help=True)
COLUMNS = ("token", "name", "roles", "created", "expires", "state")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Who or what it is for.", show_default=False)],
    grants: Annotated[
        list[str] | None,
        typer.Option(
            "--grant", help="A role in a tenant: TENANT=viewer|editor|admin; several are possible."
        ),
    ] = None,
    cluster_admin: Annotated[
        bool, typer.Option("--cluster-admin", help="It may do everything.")
    ] = False,
    lifetime: Annotated[
        str, typer.Option("--lifetime", help="Until it expires, such as `30 days`; at most 366.")
    ] = "90 days",
    output: Output = Format.TABLE,
) -> None:
    """Create a token and print it, this once. The daemon keeps only its hash."""
    body = {
        "name": name,
        "grants": dict(_grant(text) for text in grants or ()),
        "cluster_admin": cluster_admin,
        "lifetime_s": _seconds(lifetime),
    }
    with client() as daemon:
        token = daemon.post("/tokens", body)
    answer(output, token, lambda console: console.print(token["secret"], soft_wrap=True))
    if output is Format.TABLE:
        note = f"Token {token['token']}, {_roles(token)}, expires {token['expires']}."
        message_console().print(Text(f"{note} It cannot be shown again.", "dim"), soft_wrap=True)


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """List tokens with their roles, without their secrets."""
    with client() as daemon:
        tokens = daemon.get("/tokens")
    answer(output, tokens, lambda console: _draw(tokens, console))


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(help="Its id.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Revoke a token. Its next request is refused, and so are sessions that it started."""
    with client() as daemon:
        revoked = daemon.delete(f"/tokens/{token}")
    answer(output, revoked, lambda console: console.print(f"{token}: revoked", soft_wrap=True))


def _draw(tokens: list[dict[str, Any]], console: Console) -> None:
    if not tokens:
        console.print("No tokens.")
        return
    rows = [
        (
            token["token"],
            token["name"],
            _roles(token),
            token["created"],
            token["expires"],
            "valid" if token["valid"] else "revoked" if token["revoked"] else "expired",
        )
        for token in tokens
    ]
    console.print(Listing(COLUMNS, rows), crop=False)


def _roles(token: dict[str, Any]) -> str:
    if token["cluster_admin"]:
        return "cluster admin"
    return ", ".join(f"{role} of {tenant}" for tenant, role in sorted(token["grants"].items()))


def _grant(text: str) -> tuple[str, str]:
    tenant, _, role = text.partition("=")
    if role not in {"viewer", "editor", "admin"}:
        raise typer.BadParameter(f"{text!r}: write TENANT=viewer, TENANT=editor or TENANT=admin.")
    return tenant, role


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
