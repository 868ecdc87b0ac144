import sys

import pytest

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine, assign_slots, combined, local_machine, local_machines, machines_of

H1, H2, PS = Host("h1"), Host("h2", slots=3), Host("p", role="ps", slots=2)


def description(*gpus, ids=(), uuids=(), hidden=0, devices=0):
    return {
        "cores": [0], "gpus": gpus, "gpu_ids": ids, "gpu_uuids": uuids, "gpus_hidden": hidden, "gpu_devices": devices,
        "executable": "python", "cores_in_use": [], "busy": 0.0,
        "gpu_cores": [[4, 5]] * len(gpus),
    }  # fmt: skip


def test_this_machine_runs_tasks_with_this_python():
    assert local_machine().python == sys.executable
    assert local_machine().cores


THREE = description("A", "B", "C", ids=("0", "1", "MIG-c1"), uuids=("GPU-aa", "GPU-ab", "MIG-c1"))


@pytest.mark.parametrize(
    ("selected", "gpus", "gpu_ids"),
    [
        ((), ("A", "B", "C"), ("0", "1", "MIG-c1")),
        (("MIG-c1", "0"), ("C", "A"), ("MIG-c1", "0")),
        (("MIG-c", "GPU-ab"), ("C", "B"), ("MIG-c1", "GPU-ab")),
        (("none",), (), ()),
    ],
)
def test_a_hosts_gpus_key_selects_gpus_by_index_or_uuid(selected, gpus, gpu_ids):
    host = Host("h", gpus=selected)
    machine = machines_of({host: THREE})[host]
    assert (machine.gpus, machine.gpu_ids, machine.hide_gpus) == (gpus, gpu_ids, selected == ("none",))


@pytest.mark.parametrize("wrong", ["2", "GPU-a", "GPU-ac"])
def test_a_gpu_that_is_missing_or_ambiguous_is_refused(wrong):
    with pytest.raises(TfdistError, match=f"h has no GPU '{wrong}': correct gpus=; it has 0, 1, MIG-c1"):
        machines_of({Host("h", gpus=(wrong,)): THREE})


def test_a_gpu_that_is_named_twice_is_refused():
    with pytest.raises(TfdistError, match="h: gpus=1,GPU-ab names a GPU twice"):
        machines_of({Host("h", gpus=("1", "GPU-ab")): THREE})


def test_gpus_that_cannot_be_used_are_refused_unless_the_user_chose_the_cpu():
    broken = description(devices=2)
    with pytest.raises(TfdistError) as caught:
        machines_of({H1: broken, LOCAL: broken})
    first, second = str(caught.value).splitlines()
    assert first.startswith("h1: /dev has 2 GPUs, but nvidia-smi lists none")
    assert first.endswith("to use the CPU, write gpus=none for it in the hostfile")
    assert second.endswith("to use the CPU, set CUDA_VISIBLE_DEVICES=-1")
    assert caught.value.exit_code == ExitCode.HOST_LOST
    assert machines_of({H1: description(devices=2, hidden=2)})[H1].gpus == ()
    assert machines_of({H1: description()})[H1].gpus == ()


def test_a_process_uses_one_mig_instance():
    assert Machine((0,), ("A100 MIG 3g.20gb",) * 2).gpus_per_process == 1
    assert Machine((0,), ("A100",) * 2).gpus_per_process == 2
    assert Machine((0,), ()).gpus_per_process == 0


def test_the_cores_of_a_selected_gpu_stay_with_it():
    hello = {**THREE, "gpu_cores": [[0], [1], [2]]}
    assert machines_of({Host("h", gpus=("MIG-c1", "0")): hello})[Host("h", gpus=("MIG-c1", "0"))].gpu_cores == (
        (2,),
        (0,),
    )


def test_one_gpu_is_cut_into_logical_ones():
    one = Machine((0, 1), ("A100",), ("3",), gpu_cores=((0,),))
    assert one.cut(None) is one
    cut = one.cut(4)
    assert (cut.gpus, cut.gpu_ids, cut.gpu_cores) == (("A100",) * 4, ("3",) * 4, ((0,),) * 4)
    assert cut.gpus_per_process == 4
    assert Machine((0,), ("A100 MIG 1g.5gb",), ("MIG-a",)).cut(2).gpus_per_process == 2


@pytest.mark.parametrize(
    ("gpus", "words"),
    [((), "0 GPUs can be used: run it on a machine with"), (("A",) * 2, "2 GPUs can be used: choose one with CUDA_V")],
)
def test_only_one_gpu_is_cut(gpus, words):
    with pytest.raises(TfdistError, match=f"--set logical_gpus=2 cuts one GPU, and {words}"):
        Machine((0,), gpus).cut(2)


def test_gpus_of_hosts_without_workers_are_not_counted():
    evaluator = Host("e", role="evaluator", gpus=("0",))
    machines = {H1: Machine((0,), (), slots=1), evaluator: Machine((0,), ("A",), ("0",), slots=1)}
    assert combined(machines).gpus == ()


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
