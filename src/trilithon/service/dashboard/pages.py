"""Renders pages: templates with the numbers' filters, and the headers that every page has."""

from importlib import resources
from pathlib import Path
from typing import Any, Final

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

import trilithon
from trilithon.service.access.roles import Caller
from trilithon.service.dashboard import numbers
from trilithon.service.dashboard.reading import Reading

ROOT: Final = "/dashboard"
STATIC: Final = Path(str(resources.files("trilithon.service.dashboard") / "static"))
# The result pages use it as well, and have it in their package.
VENDOR: Final = Path(str(resources.files("trilithon.scenarios") / "vendor"))
# No script or style but the files of the package, and no other host.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: the log-in form would send `Origin: null`, as pages of other sites can.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_templates: Final = Environment(
    loader=PackageLoader("trilithon.service.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {
    "number": numbers.number,
    "rate": numbers.rate,
    "ms": numbers.milliseconds,
    "seconds": numbers.seconds,
    "percent": numbers.percent,
    "clock": numbers.clock_time,
}
_templates.globals |= {"root": ROOT, "version": trilithon.__version__, "ago": numbers.ago}


def page(template: str, caller: Caller | None, status: int = 200, **values: Any) -> HTMLResponse:
    """A page for a caller, or for nobody yet."""
    html = _templates.get_template(template).render(caller=caller, **values)
    return HTMLResponse(html, status, HEADERS)


def live_page(template: str, reading: Reading, **values: Any) -> HTMLResponse:
    """A page that follows the rounds of the controller."""
    return page(template, reading.caller, reading=reading, now_s=reading.now_s, **values)
