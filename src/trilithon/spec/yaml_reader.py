"""Owns reading YAML that nobody has checked: strict, bounded in time and memory, with line numbers.

The file is taken apart event by event, and reading stops at the first thing that is refused. No
object is built that the file did not spell out: anchors, aliases, tags and merges are errors.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trilithon.errors import FileUnreadable, InvalidJob, Problem

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
# Far more than a job of 256 KiB needs; it bounds the time that refusing a file may take.
MAX_NODES: Final = 10_000
MAX_KEY: Final = 256
MAX_DIGITS: Final = 40

_INT: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_HINTS: Final = {
    "cannot start any token": "Put the value into quotes, and use spaces, not tabs.",
    "mapping values are not allowed": "Put a value that holds ': ' into quotes.",
    "did not find expected": "Check the brackets, the quotes and the indentation up to here.",
}


@dataclass(slots=True)
class Lines:
    """On which line a part of the file stands, and the parts within it."""

    line: int
    parts: dict[str | int, "Lines"] = field(default_factory=dict)

    def find(self, path: str) -> int:
        """The line of a path such as `operators[2].where`, or of the innermost part there is."""
        if found := re.match(r"\[([0-9]+)\]\.?", path):
            inner = self.parts.get(int(found.group(1)))
            return self.line if inner is None else inner.find(path[found.end() :])
        # Keys may hold dots themselves: the longest one that fits is meant.
        ends = [len(path), *(m.start() for m in re.finditer(r"[.\[]", path))]
        for end in sorted(ends, reverse=True):
            if (inner := self.parts.get(path[:end])) is not None:
                return inner.find(path[end:].removeprefix("."))
        # A single `input` is the list `inputs` with one entry.
        if path.startswith("inputs[0]") and "input" in self.parts:
            return self.parts["input"].find(path[len("inputs[0]") :].removeprefix("."))
        return self.line


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and on which line each part of it stands."""

    data: Any
    lines: Lines
    file: str | None = None

    def locate(self, problem: Problem) -> Problem:
        return problem.located(self.file, self.lines.find(problem.path))


def read_yaml_file(path: Path) -> Document:
    """Reads a file, but no more of it than a job may have."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(
            f"{path} cannot be read: {error.strerror}.", "Check the name and the permissions."
        ) from error
    return read_yaml(content, str(path))


def read_yaml(content: bytes | str, file: str | None = None) -> Document:
    """Takes YAML apart. Whatever is refused comes as an `InvalidJob` with its line."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > MAX_BYTES:
        raise _refused(
            file, 1, "FILE_TOO_LARGE", f"The file has more than {MAX_BYTES // 1024} KiB.",
            "Put large tables into files of their own.",
        )  # fmt: skip
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refused(
            file, line, "NOT_YAML", "The file is not UTF-8.", "Save it as UTF-8."
        ) from error
    if found := _CONTROL.search(text.replace("\r\n", "\n")):
        line = text.count("\n", 0, found.start()) + 1
        raise _refused(file, line, "NOT_YAML", "A control character.", "Remove it.")
    try:
        return _Composer(file).document(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = (error.problem or "not well-formed").rstrip(".")
        hint = next((hint for part, hint in _HINTS.items() if part in what), "")
        line = mark.line + 1 if mark else 1
        raise _refused(file, line, "NOT_YAML", f"This is not YAML: {what}.", hint) from error
    except YAMLError as error:
        raise _refused(file, 1, "NOT_YAML", "This is not YAML.", "") from error


def _refused(file: str | None, line: int, code: str, message: str, hint: str) -> InvalidJob:
    return InvalidJob([Problem(code, "", message, hint, file, line)], file or "the file")


class _Composer:
    """Builds plain data from events, and refuses what is not plain."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.nodes = 0

    def document(self, text: str) -> Document:
        events: Iterator[Any] = YAML(typ="safe").parse(text)
        data: Any = None
        lines = Lines(1)
        documents = 0
        for event in events:
            if isinstance(event, ev.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(
                        event, "SEVERAL_DOCUMENTS", "The file holds several documents.",
                        "Write one job per file.",
                    )  # fmt: skip
                data = self._node(next(events), events, lines, 0)
        if not isinstance(data, dict):
            raise _refused(
                self.file, 1, "NOT_A_JOB", "The file does not describe a job.",
                "Begin with `name:`; `trilithon init` writes an example.",
            )  # fmt: skip
        return Document(data, lines, self.file)

    def _node(self, event: Any, events: Iterator[Any], lines: Lines, depth: int) -> Any:
        self._check(event)
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event)
        if depth >= MAX_DEPTH:
            raise self._refuse(
                event, "TOO_DEEP", f"More than {MAX_DEPTH} levels.", "Write it flatter."
            )
        if isinstance(event, ev.SequenceStartEvent):
            return self._sequence(events, lines, depth)
        return self._mapping(events, lines, depth)

    def _check(self, event: Any) -> None:
        self.nodes += 1
        if isinstance(event, ev.AliasEvent) or getattr(event, "anchor", None):
            raise self._refuse(
                event, "ANCHOR", "Anchors and aliases are not allowed.",
                "Write the value out where it is needed.",
            )  # fmt: skip
        if self.nodes > MAX_NODES:
            raise self._refuse(
                event, "TOO_MANY_NODES", f"More than {MAX_NODES} values.",
                "Put large tables into files of their own.",
            )  # fmt: skip
        if getattr(event, "tag", None) is not None:
            raise self._refuse(
                event, "TAG", f"The tag {str(event.tag)!r} is not allowed.",
                "A job is plain data: remove it.",
            )  # fmt: skip
        if isinstance(event, ev.ScalarEvent) and _CONTROL.search(event.value):
            raise self._refuse(event, "NOT_YAML", "A control character.", "Remove it.")

    def _sequence(self, events: Iterator[Any], lines: Lines, depth: int) -> list[Any]:
        found: list[Any] = []
        for event in events:
            if isinstance(event, ev.SequenceEndEvent):
                break
            inner = lines.parts[len(found)] = Lines(event.start_mark.line + 1)
            found.append(self._node(event, events, inner, depth + 1))
        return found

    def _mapping(self, events: Iterator[Any], lines: Lines, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, ev.MappingEndEvent):
                break
            key = self._key(event, found)
            inner = lines.parts[key] = Lines(event.start_mark.line + 1)
            found[key] = self._node(next(events), events, inner, depth + 1)
        return found

    def _key(self, event: Any, found: dict[str, Any]) -> str:
        self._check(event)
        if not isinstance(event, ev.ScalarEvent) or len(event.value) > MAX_KEY:
            raise self._refuse(
                event, "BAD_KEY", f"A key must be a word of up to {MAX_KEY} characters.",
                "Write `key: value`.",
            )  # fmt: skip
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            raise self._refuse(event, "ANCHOR", "Merging is not allowed.", "Write it out.")
        if key in found:
            raise self._refuse(
                event, "DUPLICATE_KEY", f"The key {key!r} is there twice.", "Keep one of the two."
            )
        return key

    def _scalar(self, event: Any) -> Any:
        """YAML 1.2's core schema: only what is not quoted can be anything but text."""
        text = str(event.value)
        if not event.implicit[0] or event.style not in {None, ""}:
            return text
        if text in {"", "~", "null", "Null", "NULL"}:
            return None
        if text in {"true", "True", "TRUE", "false", "False", "FALSE"}:
            return text.lower() == "true"
        if len(text) <= MAX_DIGITS:
            if _INT.fullmatch(text):
                return int(text)
            if _FLOAT.fullmatch(text):
                return float(text)
        return text

    def _refuse(self, event: Any, code: str, message: str, hint: str) -> InvalidJob:
        return _refused(self.file, event.start_mark.line + 1, code, message, hint)
