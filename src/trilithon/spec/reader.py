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
from ruamel.yaml.reader import ReaderError

from trilithon.errors import FileUnreadable, InvalidJob, Problem

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
# Far more than a job of 256 KiB needs; it bounds the time that refusing a file may take.
MAX_NODES: Final = 20_000
MAX_DIGITS: Final = 40

_INT: Final = re.compile(r"[-+]?\d+")
_FLOAT: Final = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and on which line each part of it stands."""

    data: Any
    lines: dict[str, int] = field(default_factory=dict)
    file: str | None = None

    def locate(self, problem: Problem) -> Problem:
        """The problem with the line of the innermost part of its path that the file has."""
        path = problem.path
        while path and path not in self.lines:
            # A single `input` is the list `inputs` with one entry.
            single = re.sub(r"\.inputs\[0\]", ".input", path)
            if single != path and single in self.lines:
                path = single
                break
            path = re.sub(r"(\.[^.\[\]]+|\[\d+\]|^[^.\[\]]+)$", "", path)
        return problem.located(self.file, self.lines.get(path, 1))


def read_file(path: Path) -> Document:
    """Reads a file, but no more of it than a job may have."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(
            f"{path} cannot be read: {error.strerror}.", "Check the name and the permissions."
        ) from error
    return read(content, str(path))


def read(content: bytes | str, file: str | None = None) -> Document:
    """Takes YAML apart. Whatever is refused comes as an `InvalidJob` with its line."""
    raw = content.encode() if isinstance(content, str) else content
    if len(raw) > MAX_BYTES:
        raise _refused(file, 1, "FILE_TOO_LARGE", f"The file has more than {MAX_BYTES // 1024} KiB.",
                       "Put large tables into files of their own.")  # fmt: skip
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refused(
            file, line, "NOT_YAML", "The file is not UTF-8.", "Save it as UTF-8."
        ) from error
    parser = _Composer(file)
    try:
        return parser.document(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = (error.problem or "not well-formed").rstrip(".")
        raise _refused(file, line, "NOT_YAML", f"This is not YAML: {what}.", "") from error
    except (ReaderError, YAMLError) as error:
        raise _refused(
            file, 1, "NOT_YAML", "The file holds characters that YAML does not allow.", ""
        ) from error


def _refused(file: str | None, line: int, code: str, message: str, hint: str) -> InvalidJob:
    return InvalidJob([Problem(code, "", message, hint, file, line)], file or "the file")


class _Composer:
    """Builds plain data from events, and refuses what is not plain."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.lines: dict[str, int] = {}
        self.nodes = 0

    def document(self, text: str) -> Document:
        events: Iterator[Any] = YAML(typ="safe").parse(text)
        data: Any = None
        documents = 0
        for event in events:
            if isinstance(event, ev.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "SEVERAL_DOCUMENTS", "The file holds several documents.",
                                       "Write one job per file.")  # fmt: skip
                data = self._node(next(events), events, "", 0)
        if not isinstance(data, dict):
            raise _refused(self.file, 1, "NOT_A_JOB", "The file does not describe a job.",
                           "Begin with `name:`; `trilithon init` writes an example.")  # fmt: skip
        return Document(data, self.lines, self.file)

    def _node(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Any:
        self._check(event, depth)
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, ev.SequenceStartEvent):
            return self._sequence(events, path, depth)
        return self._mapping(events, path, depth)

    def _check(self, event: Any, depth: int) -> None:
        self.nodes += 1
        if isinstance(event, ev.AliasEvent) or getattr(event, "anchor", None):
            raise self._refuse(event, "ANCHOR", "Anchors and aliases are not allowed.",
                               "Write the value out where it is needed.")  # fmt: skip
        if depth > MAX_DEPTH:
            raise self._refuse(event, "TOO_DEEP", f"More than {MAX_DEPTH} levels.", "Write it flatter.")  # fmt: skip
        if self.nodes > MAX_NODES:
            raise self._refuse(event, "TOO_MANY_NODES", f"More than {MAX_NODES} values.",
                               "Put large tables into files of their own.")  # fmt: skip
        if getattr(event, "tag", None) is not None:
            raise self._refuse(event, "TAG", f"The tag {str(event.tag)!r} is not allowed.",
                               "A job is plain data: remove it.")  # fmt: skip

    def _sequence(self, events: Iterator[Any], path: str, depth: int) -> list[Any]:
        found: list[Any] = []
        for event in events:
            if isinstance(event, ev.SequenceEndEvent):
                break
            found.append(self._node(event, events, f"{path}[{len(found)}]", depth + 1))
        return found

    def _mapping(self, events: Iterator[Any], path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in events:
            if isinstance(event, ev.MappingEndEvent):
                break
            self._check(event, depth + 1)
            if not isinstance(event, ev.ScalarEvent):
                raise self._refuse(event, "BAD_KEY", "A key must be a word.", "Write `key: value`.")
            key = str(event.value)
            if key == "<<" and event.implicit[0]:
                raise self._refuse(event, "ANCHOR", "Merging is not allowed.", "Write it out.")
            if key in found:
                raise self._refuse(event, "DUPLICATE_KEY", f"The key {key!r} is there twice.",
                                   "Keep one of the two.")  # fmt: skip
            inner = f"{path}.{key}" if path else key
            self.lines[inner] = event.start_mark.line + 1
            found[key] = self._node(next(events), events, inner, depth + 1)
        return found

    def _scalar(self, event: Any) -> Any:
        """YAML 1.2's core schema: only what is not quoted can be anything but text."""
        text = str(event.value)
        if not event.implicit[0] or event.style not in {None, ""}:
            return text
        if text in {"", "~", "null", "Null", "NULL"}:
            return None
        if text.lower() in {"true", "false"} and text in {text.lower(), text.title(), text.upper()}:
            return text.lower() == "true"
        if len(text) <= MAX_DIGITS:
            if _INT.fullmatch(text):
                return int(text)
            if _FLOAT.fullmatch(text):
                return float(text)
        return text

    def _refuse(self, event: Any, code: str, message: str, hint: str) -> InvalidJob:
        return _refused(self.file, event.start_mark.line + 1, code, message, hint)
