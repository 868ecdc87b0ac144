import sys

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine, assign_slots, combined, local_machine, local_machines, machines_of

H1, H2, PS = Host("h1"), Host("h2", slots=3), Host("p", role="ps", slots=2)


def description(*gpus, ids=()):
    return {"cores": [0], "gpus": gpus, "gpu_ids": ids, "executable": "python"}


def test_this_machine_runs_tasks_with_this_python():
    assert local_machine().python == sys.executable
    assert local_machine().cores


@pytest.mark.parametrize(
    ("selected", "gpus", "gpu_ids"),
    [((), ("A", "B", "C"), ("0", "1", "GPU-c")), (("GPU-c", "0"), ("C", "A"), ("GPU-c", "0"))],
)
def test_a_hosts_gpus_key_selects_gpus_by_id(selected, gpus, gpu_ids):
    host = Host("h", gpus=selected)
    machine = machines_of({host: description("A", "B", "C", ids=("0", "1", "GPU-c"))})[host]
    assert (machine.gpus, machine.gpu_ids) == (gpus, gpu_ids)


def test_gpus_without_ids_are_selected_by_number():
    host = Host("h", gpus=("1",))
    assert machines_of({host: description("A", "B")})[host].gpus == ("B",)
    with pytest.raises(TfdistError, match="h has no GPU '2': correct gpus=; it has 0, 1"):
        machines_of({Host("h", gpus=("2",)): description("A", "B")})


def test_a_single_machine_is_combined_to_itself():
    machine = Machine((0, 1), ("A",))
    assert combined(local_machines(machine)) is machine
    assert list(local_machines(machine)) == [LOCAL]


def test_combined_sums_cores_gpus_and_worker_slots():
    machines = assign_slots(
        {H1: Machine((0, 1), ("A",)), H2: Machine((0,), ("B", "C")), PS: Machine((0,), ())}, None, 1
    )
    total = combined(machines)
    assert (len(total.cores), total.gpus, total.hosts) == (4, ("A", "B", "C"), 3)
    assert total.slots == 1 + 3


def test_slots_come_from_the_host_the_option_or_the_gpus():
    machines = {H1: Machine((0,), ("A",) * 8), H2: Machine((0,), ()), PS: Machine((0,), ())}
    assert [machine.slots for machine in assign_slots(machines, None, 2).values()] == [4, 3, 2]
    assert [machine.slots for machine in assign_slots(machines, 3, 2).values()] == [3, 3, 2]
    with pytest.raises(TfdistError, match="--workers-per-host 2: h2 has slots=3"):
        assign_slots(machines, 2, 1)
