"""What a scene shows of machines: name, cores, slots, load, memory and the instances there."""

import numpy as np

from tests.cluster import START_S, chain
from trilithon.model.capability import Capabilities
from trilithon.model.columns import Instances, Machines
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.scene import Cluster, Scene

A, B = chain("a"), chain("b", operators=1)


def scene() -> Scene:
    layout = Layout.build([A, B], {A.id: {"o0": 2, "o1": 1}}, machines=["m0", "m1"])
    # Where the last instance runs is not known.
    placed = np.array([0.0, 1.0, 1.0, np.nan])
    snapshot = Snapshot.empty(START_S, layout)
    columns = {
        "instances": Instances.of(4, machine=placed),
        "machines": Machines.of(
            2,
            cores=[4.0, 8.0],
            load=[1.5, np.nan],
            memory_bytes=[2.0**30, 2.0**31],
            memory_used_bytes=[2.0**29, np.nan],
        ),
    }
    for name, column in columns.items():
        object.__setattr__(snapshot, name, column)
    cluster = Cluster(Capabilities({}, machine_slots={"m0": 10}))
    return Scene(1, Series((snapshot,)), {}, cluster)


def test_machines_have_what_was_measured_and_none_where_it_was_not() -> None:
    first, second = scene().machines
    assert (first.name, first.cores, first.load) == ("m0", 4.0, 1.5)
    assert (first.memory_bytes, first.memory_used_bytes) == (2.0**30, 2.0**29)
    assert (second.name, second.cores, second.load) == ("m1", 8.0, None)
    assert second.memory_used_bytes is None


def test_machines_have_the_slots_that_the_engine_knows() -> None:
    assert [machine.slots for machine in scene().machines] == [10, None]


def test_machines_know_the_instances_that_run_on_them() -> None:
    first, second = scene().machines
    assert first.instances == ((A.id, "o0", 0),)
    assert second.instances == ((A.id, "o0", 1), (A.id, "o1", 0))


def test_names_of_machines_come_without_looking_at_instances() -> None:
    shown = scene()
    assert shown.machine_names == ("m0", "m1")
    assert "machines" not in vars(shown)
