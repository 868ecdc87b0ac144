"""Plans of the next attempt: with the hosts that answer, and as many workers as fit on them."""

import pytest

from tfdist.jobs.elastic import ElasticHosts
from tfdist.jobs.host_selection import hostfile_changes
from tfdist.jobs.plan import plan
from tfdist.jobs.recovery import Recovery
from tfdist.jobs.request import Request
from tfdist.launch.agent_program.description import describe
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import assign_slots, machines_of
from tfdist.launch.supervision.restarts import SavedState
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import TrainingSpec

HELLO = {**describe(), "gpus": [], "gpu_ids": [], "gpu_uuids": [], "gpu_cores": [], "gpus_hidden": 0, "gpu_devices": 0}
SPEC = {"strategy": "multiworker", "preset": "smoke", "steps": 300}


def host(name, **values):
    return Host(name, f"10.0.0.{ord(name[-1])}", prefix=("ssh", name), **values)


H1, H2, H3 = host("h1"), host("h2"), host("h3")


def hellos(*hosts, **changed):
    return {one: {**HELLO, **changed.get(one.name, {})} for one in hosts}


def started(hosts, choices=SPEC, least=1, command=(), **saved):
    """The hosts of a job that was planned on these, and that job."""
    request = Request(choices, tuple(command), recovery=Recovery(**saved))
    machines = assign_slots(machines_of(hellos(*hosts)), None, 1)
    planned = plan(request, machines)
    choice = ElasticHosts(planned, lambda: hosts, None, least, choices.get("workers"))
    return choice, planned.job


def tasks(job):
    return {plan.task.name: plan.host.name for plan in job.plans}


def spec_of(job):
    return TrainingSpec.from_env(job.plans[0].program.env)


def test_a_lost_host_is_left_out_and_the_remaining_examples_stay():
    choice, job = started((H1, H2, H3))
    next_plan = choice.plan(job, hellos(H1, H3), SavedState(33, 33 * 96))
    assert tasks(next_plan.job) == {"worker-0": "h1", "worker-1": "h3"}
    expected = "global batch 64 instead of 96, 401 steps left instead of 267"
    assert next_plan.note == f"2 workers instead of 3 (lost h2): {expected}"
    spec = spec_of(next_plan.job)
    assert (spec.workers, spec.batch_size, spec.examples, spec.steps) == (2, 32, 28800, 434)
    assert choice.planned == (next_plan.job, spec)


def test_the_same_job_goes_on_where_no_host_has_changed():
    choice, job = started((H1, H2))
    assert choice.plan(job, hellos(H1, H2), SavedState()).job is job


def test_a_named_task_that_does_not_come_back_is_no_error():
    machines = assign_slots(machines_of(hellos(H1, H2, H3)), None, 1)
    planned = plan(Request(SPEC, output="worker-2"), machines)
    choice = ElasticHosts(planned, lambda: (H1, H2, H3), None, 1)
    assert len(choice.plan(planned.job, hellos(H1, H3), SavedState()).job.plans) == 2


def test_a_program_is_that_of_the_start_wherever_the_launcher_is_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choice, job = started((H1, H2), {"strategy": "multiworker"}, command=("python", "train.py"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fewer = choice.plan(job, hellos(H2), SavedState()).job
    assert {each.program.cwd for each in fewer.plans} == {str(tmp_path)}


def test_a_host_that_is_back_joins():
    choice, job = started((H1, H2, H3))
    fewer = choice.plan(job, hellos(H1, H3), SavedState(33, 33 * 96)).job
    later = SavedState(133, 33 * 96 + 100 * 64)
    again = choice.plan(fewer, hellos(H1, H2, H3), later)
    assert tasks(again.job) == {"worker-0": "h1", "worker-1": "h2", "worker-2": "h3"}
    assert again.note == (
        "3 workers instead of 2 (with h2): global batch 96 instead of 64, 201 steps left instead of 301"
    )


def test_a_plan_that_was_not_used_changes_nothing():
    choice, job = started((H1, H2, H3))
    choice.plan(job, hellos(H1), SavedState())
    again = choice.plan(job, hellos(H1, H2), SavedState())
    assert again.note.startswith("2 workers instead of 3 (lost h3): global batch 64 instead of 96")
    assert choice.plan(job, hellos(H1, H2, H3), SavedState()).job is job
    assert choice.planned[1].workers == 3


def test_new_hosts_are_used_up_to_the_number_of_workers():
    assert len(started((H1, H2))[0].plan(started((H1, H2))[1], hellos(H1, H2, H3), SavedState()).job.plans) == 3
    choice, job = started((H1, H2), {**SPEC, "workers": 2})
    swapped = choice.plan(job, hellos(H2, H3), SavedState())
    assert swapped.note == "2 workers (lost h1, with h3)"
    assert choice.plan(job, hellos(H1, H2, H3), SavedState()).job is job


def test_too_few_hosts():
    choice, job = started((H1, H2, H3), least=2)
    with pytest.raises(TfdistError, match=r"^1 worker fits on h1, but --min-workers is 2$") as caught:
        choice.plan(job, hellos(H1), SavedState())
    assert caught.value.exit_code == 69
    with pytest.raises(TfdistError, match=r"^no host for workers is left, but --min-workers is 2$"):
        choice.plan(job, {}, SavedState())


def test_slots_count_and_a_host_may_get_fewer_workers_than_it_has_slots():
    choice, job = started((host("h1", slots=2), host("h2", slots=2)), {**SPEC, "workers": 3})
    fewer = choice.plan(job, hellos(host("h2", slots=2)), SavedState())
    assert tasks(fewer.job) == {"worker-0": "h2", "worker-1": "h2"}


def test_parameter_servers_move_to_the_hosts_that_are_left():
    choices = {"strategy": "parameter-server", "preset": "smoke", "ps": 2, "steps": 600}
    choice, job = started((H1, H2, H3), choices)
    assert tasks(job)["ps-1"] == "h2"
    fewer = choice.plan(job, hellos(H1, H3), SavedState(100, 3200))
    assert tasks(fewer.job) == {"chief-0": "h1", "worker-0": "h1", "worker-1": "h3", "ps-0": "h1", "ps-1": "h3"}
    assert fewer.note == "2 workers instead of 3 (lost h2)"
    assert spec_of(fewer.job).steps == 600


def test_hosts_for_parameter_servers():
    servers = host("h2", role="ps"), host("h3", role="ps")
    choice, job = started((H1, *servers), {"strategy": "parameter-server", "preset": "smoke"})
    fewer = choice.plan(job, hellos(H1, servers[1]), SavedState())
    assert fewer.note == "1 parameter server instead of 2 (lost h2)"
    assert tasks(fewer.job)["ps-0"] == "h3"


def test_a_host_that_has_come_back_without_its_gpus_is_left_out():
    gpus = {"gpus": ["A"], "gpu_ids": ["0"], "gpu_uuids": ["u"], "gpu_cores": [[0]]}
    with_gpus = {"h1": gpus, "h2": gpus}
    request = Request({**SPEC, "communication": "ring"})
    planned = plan(request, assign_slots(machines_of(hellos(H1, H2, **with_gpus)), None, 1))
    choice = ElasticHosts(planned, lambda: (H1, H2), None, 1)
    fewer = choice.plan(planned.job, hellos(H1, H2, h1=gpus), SavedState())
    assert tasks(fewer.job) == {"worker-0": "h1"}
    assert choice.plan(planned.job, hellos(H1, H2, h1=gpus, h2={"gpu_devices": 1}), SavedState()).note == fewer.note


def test_a_program_of_the_user_gets_another_cluster_and_keeps_its_folder(tmp_path):
    choices = {"strategy": "multiworker"}
    choice, job = started((H1, H2), choices, command=("python", "train.py"), checkpoint_dir=str(tmp_path))
    fewer = choice.plan(job, hellos(H2), SavedState())
    assert fewer.note == "1 worker instead of 2 (lost h1)"
    assert tasks(fewer.job) == {"worker-0": "h2"}
    assert fewer.job.plans[0].program.env[Checkpointing.FOLDER_VARIABLE] == str(tmp_path)
    assert fewer.job.checkpoint_dir == str(tmp_path)


@pytest.fixture
def hostfile(tmp_path):
    """A hostfile with two hosts, whose lines are names."""
    path = tmp_path / "hosts.txt"
    path.write_text("h1 h2")
    return path


@pytest.fixture
def changes(hostfile):
    """The hosts of a hostfile; an empty one is wrong."""

    def read():
        names = hostfile.read_text().split()
        if not names:
            raise TfdistError(f"--hostfile {hostfile}: no hosts")
        return tuple(host(name, slots=7) for name in names)

    return hostfile_changes((H1, H2), hostfile, read)


def test_a_hostfile_that_has_not_changed_is_not_read(hostfile):
    assert hostfile_changes((H1, H2), hostfile, None)() == (H1, H2)


def test_hosts_are_added_and_removed_and_the_others_keep_their_settings(changes, hostfile):
    hostfile.write_text("h2 h3")
    assert changes() == (H2, host("h3", slots=7))


def test_a_wrong_hostfile_is_reported_once_and_changes_nothing(changes, hostfile):
    hostfile.write_text("")
    with pytest.raises(TfdistError, match=r"no hosts; the job keeps its hosts$"):
        changes()
    assert changes() == (H1, H2)
    hostfile.unlink()  # an editor replaces it
    assert changes() == (H1, H2)
    hostfile.write_text("h1")
    assert changes() == (H1,)
