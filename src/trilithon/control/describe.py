"""Describes changes and actions in words, from their JSON in the journal."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from trilithon.model.groups import SPREAD

Data = Mapping[str, Any]


def describe_change(data: Data) -> str:
    """A change in a few words: `join ×4`, `weights of join 1, 0.5`, `2 machines more`."""
    if "do" in data:  # a row that version 0.1 wrote
        return describe_action(data)
    return _CHANGES[data["change"]](data)


def describe_action(
    data: Data, changes: tuple[Data, ...] = (), facets: tuple[str, ...] = ()
) -> str:
    """An action in a few words. Wanted state is described by the changes it was made from, of
    these facets if they are known.
    """
    if data["do"] == "reallocate":
        mine = [c for c in changes if c.get("change") in _WANTED_STATE]
        mine = [c for c in mine if c["job"] == data["allocation"]["job"]]
        mine = [c for c in mine if not facets or c["change"] in facets]
        if mine:
            return "; ".join(map(describe_change, mine))
        return _parallelism(data["allocation"])
    return _ACTIONS[data["do"]](data)


def _parallelism(data: Data) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in data["parallelism"].items())


def _weights(data: Data) -> str:
    return "; ".join(
        f"weights of {name} {', '.join(f'{w:g}' for w in weights)}"
        for name, weights in data["weights"].items()
    )


def _placement(data: Data) -> str:
    return "; ".join(
        f"{name} on {', '.join(machine or 'any machine' for machine in machines)}"
        for name, machines in data["placement"].items()
    )


def _key_groups(data: Data) -> str:
    parts = []
    for name, owners in data["groups"].items():
        counted = Counter(owners)
        shares = ", ".join(str(counted[index]) for index in range(max(counted) + 1))
        spread = f", {counted[SPREAD]} spread over all" if counted[SPREAD] else ""
        parts.append(f"key groups of {name} per instance {shares}{spread}")
    return "; ".join(parts)


def _avoided_tasks(data: Data) -> str:
    return "; ".join(
        f"{name} without task{'' if len(tasks) == 1 else 's'} {', '.join(map(str, tasks))}"
        if tasks
        else f"{name} with all its tasks"
        for name, tasks in data["avoided"].items()
    )


def _batching(data: Data) -> str:
    return "; ".join(
        f"batching on {edge} at most {wait_ms:g} ms"
        for edge, wait_ms in data["batching_ms"].items()
    )


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'} more"


def _alert(data: Data) -> str:
    return f"{data['severity']} alert {data['code']}: {data['sentence']} {data['advice']}".rstrip()


_ACTIONS: Final[dict[str, Callable[[Data], str]]] = {
    "restart_instance": lambda d: f"restart of {d['operator']}[{d['index']}]",
    "restart_job": lambda d: f"restart of {d['job']}",
    "add_machines": lambda d: _machines(d["count"]),
    "remove_machines": lambda d: f"removal of {', '.join(d['machines'])}",
}
_WANTED_STATE: Final[dict[str, Callable[[Data], str]]] = {
    "parallelism": _parallelism,
    "weights": _weights,
    "placement": _placement,
    "key_groups": _key_groups,
    "avoided_tasks": _avoided_tasks,
    "batching": _batching,
}
_CHANGES: Final = {**_WANTED_STATE, **_ACTIONS, "alert": _alert}
