"""Loads the module of a command when the command is called. `--help` and shell completion need
only the name and the summary.
"""

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption


class LazyCommand(TyperCommand):
    """Stands for a command, or a group of commands, whose module is not imported yet.

    `target` is `module:attribute`: a function, or a `typer.Typer` with several commands. What
    `common` makes is an option of each of them.
    """

    def __init__(
        self, name: str, target: str, summary: str, common: Callable[[], TyperOption] | None = None
    ) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self.target, self.common = target, common

    @cached_property
    def loaded(self) -> TyperCommand | TyperGroup:
        """The command itself. Imports its module."""
        module, _, attribute = self.target.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = self.name
            for command in group.commands.values():
                self._complete(command)
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(self.name)(found)
        command = typer.main.get_command(single)
        if not isinstance(command, TyperCommand):  # pragma: no cover - Typer makes no other
            raise TypeError(f"{self.target} is no command")
        self._complete(command)
        return command

    def _complete(self, command: Any) -> None:
        if self.common is not None:
            command.params.append(self.common())

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Where parsing of a command's arguments begins, and completion of them: from here on the
        command itself answers.
        """
        return self.loaded.make_context(*args, **kwargs)


class LazyGroup(TyperGroup):
    """A group that is given its commands as a table: name → (target, summary). Those that `common`
    names get the option that `common_option` makes.
    """

    table: ClassVar[dict[str, tuple[str, str]]]
    common: ClassVar[frozenset[str]] = frozenset()
    common_option: ClassVar[Callable[[], TyperOption] | None] = None

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (target, summary) in self.table.items():
            option = type(self).common_option if name in self.common else None
            self.add_command(LazyCommand(name, target, summary, option))
