"""Opens the file of the journal: SQLite with a write-ahead log and full sync, migrated by number.

A committed transaction survives a crash of the process and of the machine. A simulated run that
nobody asked to keep has its journal in memory.
"""

import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from trilithon.control.failpoints import hit
from trilithon.errors import JournalUnusable


def migrations(package: str = "trilithon.control.journal") -> dict[int, str]:
    """The numbered migrations of a package."""
    folder = resources.files(package) / "migrations"
    return {
        int(match[1]): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name))
    }


class Database:
    """One connection, used by one thread at a time. Without a path, it is to memory."""

    def __init__(self, path: Path | None, steps: Mapping[int, str] | None = None) -> None:
        self.path = path
        self.lock = threading.RLock()
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = path or ":memory:"
            self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA busy_timeout = 5000")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._migrate(migrations() if steps is None else steps)
        except sqlite3.DatabaseError as error:
            raise JournalUnusable(
                f"The journal {path} cannot be used: {error}.",
                "Move the file away to start an empty journal, or restore a copy.",
            ) from error

    def _migrate(self, steps: Mapping[int, str]) -> None:
        """Migrates the file to the newest version, each step in a transaction of its own."""
        newest = max(steps)
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version > newest:
            raise JournalUnusable(
                f"The journal {self.path} has version {version}; this program knows {newest}.",
                "Use the program that wrote it, or a newer one.",
            )
        for number in range(version + 1, newest + 1):
            script = f"BEGIN IMMEDIATE;\n{steps[number]}\nPRAGMA user_version = {number};\nCOMMIT;"
            try:
                self._connection.executescript(script)
            except sqlite3.DatabaseError:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def transaction(self, name: str) -> Iterator["Database"]:
        """A transaction: commits at the end, rolls back on any exception."""
        with self.lock:
            hit(f"journal.{name}.before")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self
                hit(f"journal.{name}.inside")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            hit(f"journal.{name}.after")

    def write(self, sql: str, *values: Any) -> int:
        """Executes a statement inside a transaction; returns the number of changed rows."""
        return self._connection.execute(sql, values).rowcount

    def insert(self, table: str, replace: bool = False, **row: Any) -> None:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        self._connection.execute(
            f"{verb} INTO {table} ({names}) VALUES ({marks})",
            tuple(row.values()),
        )

    def all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self.lock:
            return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        rows = self.all(sql, *values)
        return rows[0] if rows else None

    def close(self) -> None:
        with self.lock:
            self._connection.close()
