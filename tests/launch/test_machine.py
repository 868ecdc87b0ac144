import sys

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine, assign_slots, combined, local_machine, local_machines

H1, H2, PS = Host("h1"), Host("h2", slots=3), Host("p", role="ps", slots=2)


def test_this_machine_runs_tasks_with_our_own_python():
    assert local_machine().python == sys.executable
    assert local_machine().cores


def test_some_of_its_gpus_by_the_names_that_cuda_has_for_them():
    machine = Machine((0,), ("A", "B", "C"), ("0", "1", "GPU-c"))
    assert machine.restricted_to(()) is machine
    some = machine.restricted_to(("GPU-c", "0"))
    assert (some.gpus, some.gpu_ids) == (("C", "A"), ("GPU-c", "0"))
    assert Machine((0,), ("A", "B")).restricted_to(("1",)).gpus == ("B",)
    with pytest.raises(KeyError):
        machine.restricted_to(("2",))


def test_one_machine_alone_is_itself():
    machine = Machine((0, 1), ("A",))
    assert combined(local_machines(machine)) is machine
    assert list(local_machines(machine)) == [LOCAL]


def test_hosts_together_are_counted_as_one_machine_and_servers_take_no_workers():
    machines = assign_slots(
        {H1: Machine((0, 1), ("A",)), H2: Machine((0,), ("B", "C")), PS: Machine((0,), ())}, None, 1
    )
    sum_ = combined(machines)
    assert (len(sum_.cores), sum_.gpus, sum_.hosts) == (4, ("A", "B", "C"), 3)
    assert sum_.slots == 1 + 3


def test_every_host_has_its_number_of_slots():
    machines = {H1: Machine((0,), ("A",) * 8), H2: Machine((0,), ()), PS: Machine((0,), ())}
    assert [machine.slots for machine in assign_slots(machines, None, 2).values()] == [4, 3, 2]
    assert [machine.slots for machine in assign_slots(machines, 3, 2).values()] == [3, 3, 2]
    with pytest.raises(TfdistError, match="--workers-per-host 2: h2 has slots=3"):
        assign_slots(machines, 2, 1)
