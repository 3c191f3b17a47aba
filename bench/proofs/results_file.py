"""A file of results, so that a long benchmark goes on where it was interrupted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ResultsFile:
    """Results by name. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results: dict[str, Any] = {}
        if path is not None and path.is_file():
            self.results = json.loads(path.read_text("utf-8"))

    def __contains__(self, name: str) -> bool:
        return name in self.results

    def put(self, name: str, result: Any) -> None:
        """Adds a result; the file is complete at any moment."""
        self.results[name] = result
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.results, indent=1) + "\n", "utf-8")
            fresh.replace(self.path)

    def missing(self, name: str, run: Callable[[], Any]) -> Any:
        """The result of that name, from the file or from a run."""
        if name not in self.results:
            self.put(name, run())
        return self.results[name]
