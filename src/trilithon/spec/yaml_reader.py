"""Reads untrusted YAML: strict, bounded in time and memory, with line numbers.

The file is parsed event by event, and parsing stops at the first error. No value is built that the
file does not spell out: anchors, aliases, tags and merges are errors.
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
# Far more than a job of 256 KiB needs; it bounds the time to refuse a file.
MAX_NODES: Final = 10_000
MAX_KEY: Final = 256
MAX_DIGITS: Final = 40

_INT: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL_CHARACTER: Final = "The file contains a control character."
_SEPARATE_FILES: Final = "Put large tables into separate files."
# Hints by what the YAML parser says.
_HINTS: Final = {
    "cannot start any token": "Put the value into quotes, and use spaces, not tabs.",
    "mapping values are not allowed": "Put a value that contains ': ' into quotes.",
    "did not find expected": "Check the brackets, the quotes and the indentation up to here.",
}


@dataclass(slots=True)
class LineMap:
    """The line of a value in the file, and the line maps of the values inside it."""

    line: int
    parts: dict[str | int, "LineMap"] = field(default_factory=dict)

    def find(self, path: str) -> int:
        """The line of a path such as `operators[2].where`, or of its innermost existing part."""
        if item := re.match(r"\[([0-9]+)\]\.?", path):
            inner = self.parts.get(int(item.group(1)))
            return self.line if inner is None else inner.find(path[item.end() :])
        # Keys may contain dots themselves: the longest matching key wins.
        ends = [len(path), *(m.start() for m in re.finditer(r"[.\[]", path))]
        for end in sorted(ends, reverse=True):
            if (inner := self.parts.get(path[:end])) is not None:
                return inner.find(path[end:].removeprefix("."))
        # The model calls a single `input` `inputs[0]`.
        if path.startswith("inputs[0]") and "input" in self.parts:
            return self.parts["input"].find(path[len("inputs[0]") :].removeprefix("."))
        return self.line


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a file, and the line of each value in it."""

    data: Any
    lines: LineMap
    file: str | None = None

    def locate(self, problem: Problem) -> Problem:
        return problem.located(self.file, self.lines.find(problem.path))


def read_yaml_file(path: Path) -> Document:
    """Read a YAML file, but no more than `MAX_BYTES` of it."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(
            f"{path} cannot be read: {error.strerror}.", "Check the name and the permissions."
        ) from error
    return read_yaml(content, str(path))


def read_yaml(content: bytes | str, file: str | None = None) -> Document:
    """Parse YAML. Raises `InvalidJob` with the line of the first error."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > MAX_BYTES:
        message = f"The file is larger than {MAX_BYTES // 1024} KiB."
        raise _refused(file, 1, "FILE_TOO_LARGE", message, _SEPARATE_FILES)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refused(
            file, line, "NOT_YAML", "The file is not UTF-8.", "Save it as UTF-8."
        ) from error
    if control := _CONTROL.search(text.replace("\r\n", "\n")):
        line = text.count("\n", 0, control.start()) + 1
        raise _refused(file, line, "NOT_YAML", _CONTROL_CHARACTER, "Remove it.")
    try:
        return _YamlComposer(file).document(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = (error.problem or "not well-formed").rstrip(".")
        hint = next((hint for part, hint in _HINTS.items() if part in reason), "")
        line = mark.line + 1 if mark else 1
        raise _refused(file, line, "NOT_YAML", f"This is not YAML: {reason}.", hint) from error
    except YAMLError as error:
        raise _refused(file, 1, "NOT_YAML", "This is not YAML.", "") from error


def _refused(file: str | None, line: int, code: str, message: str, hint: str) -> InvalidJob:
    return InvalidJob([Problem(code, "", message, hint, file, line)], file or "the file")


class _YamlComposer:
    """Builds plain data from YAML events and refuses everything that is not plain data."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.nodes = 0

    def document(self, text: str) -> Document:
        events: Iterator[Any] = YAML(typ="safe").parse(text)
        data: Any = None
        lines = LineMap(1)
        documents = 0
        for event in events:
            if isinstance(event, ev.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "The file contains several YAML documents."
                    raise self._refuse(
                        event, "SEVERAL_DOCUMENTS", message, "Write one job per file."
                    )
                data = self._node(next(events), events, lines, 0)
        if not isinstance(data, dict):
            hint = "Begin with `name:`; `trilithon init` writes an example."
            raise _refused(self.file, 1, "NOT_A_JOB", "The file does not describe a job.", hint)
        return Document(data, lines, self.file)

    def _node(self, event: Any, events: Iterator[Any], lines: LineMap, depth: int) -> Any:
        self._check(event)
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event)
        if depth >= MAX_DEPTH:
            message = f"The file is nested more than {MAX_DEPTH} levels deep."
            raise self._refuse(event, "TOO_DEEP", message, "Flatten it.")
        if isinstance(event, ev.SequenceStartEvent):
            return self._sequence(events, lines, depth)
        return self._mapping(events, lines, depth)

    def _check(self, event: Any) -> None:
        self.nodes += 1
        if isinstance(event, ev.AliasEvent) or getattr(event, "anchor", None):
            message = "Anchors and aliases are not allowed."
            raise self._refuse(event, "ANCHOR", message, "Repeat the value where it is needed.")
        if self.nodes > MAX_NODES:
            message = f"The file has more than {MAX_NODES} values."
            raise self._refuse(event, "TOO_MANY_NODES", message, _SEPARATE_FILES)
        if getattr(event, "tag", None) is not None:
            message = f"The tag {str(event.tag)!r} is not allowed."
            raise self._refuse(event, "TAG", message, "A job is plain data: remove the tag.")
        if isinstance(event, ev.ScalarEvent) and _CONTROL.search(event.value):
            raise self._refuse(event, "NOT_YAML", _CONTROL_CHARACTER, "Remove it.")

    def _sequence(self, events: Iterator[Any], lines: LineMap, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, ev.SequenceEndEvent):
                break
            inner = lines.parts[len(items)] = LineMap(event.start_mark.line + 1)
            items.append(self._node(event, events, inner, depth + 1))
        return items

    def _mapping(self, events: Iterator[Any], lines: LineMap, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for event in events:
            if isinstance(event, ev.MappingEndEvent):
                break
            key = self._key(event, mapping)
            inner = lines.parts[key] = LineMap(event.start_mark.line + 1)
            mapping[key] = self._node(next(events), events, inner, depth + 1)
        return mapping

    def _key(self, event: Any, mapping: dict[str, Any]) -> str:
        self._check(event)
        if not isinstance(event, ev.ScalarEvent) or len(event.value) > MAX_KEY:
            message = f"A key must be a string of at most {MAX_KEY} characters."
            raise self._refuse(event, "BAD_KEY", message, "Write `key: value`.")
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            hint = "Repeat the values where they are needed."
            raise self._refuse(event, "ANCHOR", "Merge keys (`<<`) are not allowed.", hint)
        if key in mapping:
            message = f"The key {key!r} occurs twice in this mapping."
            raise self._refuse(event, "DUPLICATE_KEY", message, "Remove one of the two.")
        return key

    def _scalar(self, event: Any) -> Any:
        """The value by YAML 1.2's core schema: a quoted scalar is always a string."""
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
