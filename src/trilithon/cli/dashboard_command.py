"""Owns the command `dashboard`: a link that logs a browser in."""

from trilithon.cli.client import client
from trilithon.cli.output import Format, Output, answer


def dashboard_command(output: Output = Format.TABLE) -> None:
    """Print a link to the dashboard. It logs a browser in, once and within five minutes."""
    with client() as daemon:
        url = daemon.url + daemon.post("/login-codes")["path"]
    answer(output, {"url": url}, lambda console: console.print(url, soft_wrap=True))
