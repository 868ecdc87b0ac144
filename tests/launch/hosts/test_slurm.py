import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.locate import locate
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.hosts.slurm import leaking_variables, slurm_hosts, with_groups
from tfdist.launch.hosts.transport import TransportOptions

from .samples import names

HET = {
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[1-2]",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu7",
}


def test_the_hosts_are_those_of_the_allocation_in_order():
    hosts = slurm_hosts({"SLURM_JOB_NODELIST": "gpu[09-10,03],login1"})
    assert names(hosts) == ["gpu09", "gpu10", "gpu03", "login1"]
    assert {host.het_group for host in hosts} == {None}
    assert [host.address for host in locate(hosts, TransportOptions(transport="srun"))] == names(hosts)


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_NODELIST": ""}])
def test_outside_of_an_allocation_there_are_none(environ):
    with pytest.raises(TfdistError, match="salloc"):
        slurm_hosts(environ)


def test_a_heterogeneous_job_has_the_hosts_of_all_groups():
    of_salloc = {name: value for name, value in HET.items() if name != "SLURM_JOB_NODELIST"}
    for environ in (HET, of_salloc):
        hosts = slurm_hosts(environ)
        assert [(host.name, host.het_group) for host in hosts] == [("gpu1", 0), ("gpu2", 0), ("cpu7", 1)]


def test_hosts_that_are_named_get_their_groups():
    hosts = with_groups(parse_hosts("cpu7:2,gpu1"), HET)
    assert [(host.name, host.slots, host.het_group) for host in hosts] == [("cpu7", 2, 1), ("gpu1", None, 0)]
    assert [host.het_group for host in with_groups(parse_hosts("cpu7"), {})] == [None]


def test_a_host_of_no_group_is_refused():
    with pytest.raises(TfdistError, match="gpu3: not a node of this heterogeneous job; use gpu1, gpu2, cpu7"):
        with_groups(parse_hosts("gpu1,gpu3"), HET)


def test_a_node_of_two_groups_is_refused():
    shared = {**HET, "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu2"}
    with pytest.raises(TfdistError, match="HET_GROUP_1 gpu2: also in group 0; request each group with --exclusive"):
        slurm_hosts(shared)


def test_a_group_without_a_list_of_nodes_is_named():
    missing = {name: value for name, value in HET.items() if not name.endswith("_1")}
    with pytest.raises(TfdistError, match="SLURM_JOB_NODELIST_HET_GROUP_1 '': no hosts"):
        slurm_hosts(missing)


def test_variables_that_change_a_step_leak_and_those_of_the_job_do_not():
    leaking = {
        "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_EXACT", "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPU_BIND", "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_NODE", "SLURM_MEM_BIND", "SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_DISTRIBUTION",
    }  # fmt: skip
    kept = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_RESTART_COUNT", "PATH", "CUDA_VISIBLE_DEVICES"}
    assert set(leaking_variables(dict.fromkeys(leaking | kept, "1"))) == leaking
