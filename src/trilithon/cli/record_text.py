"""Draws records for people: everybody who may write to a topic could send what changes a terminal,
so none of that reaches it.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from rich.text import Text

_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x0A
}


def printable(content: str) -> str:
    """Text without characters that would change the terminal."""
    return content.translate(_CONTROLS)


def value_text(value: Any, *, is_text: bool) -> str:
    """A text as it is, data as indented JSON."""
    text = value if is_text else json.dumps(value, indent=2, ensure_ascii=False)
    return printable(text).replace("\n", "\n  ")


def record_text(
    time: str | None,
    place: str,
    key: str | None,
    headers: Iterable[tuple[str, str | None]],
    value: str,
) -> Text:
    """A record: its time, place and key in one line, and behind or below that its value."""
    at = "" if time is None else time.replace("T", " ").removesuffix("+00:00")
    shown_key = "" if key is None else f"  key {printable(key)}"
    shown_headers = "".join(f"  {printable(name)}={printable(v or '')}" for name, v in headers)
    return Text.assemble(
        (f"{at}  {printable(place)}", "dim"), (shown_key, "cyan"), (shown_headers, "dim"), value
    )
