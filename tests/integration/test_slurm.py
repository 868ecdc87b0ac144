"""Jobs under Slurm's own daemons: a slurmctld, and a slurmd on each of three hosts."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from .conftest import hosts_fixture
from .launcher import CLEAN_S
from .namespaces import Network
from .slurm import CPUS, Slurm, UnavailableError, slurm, unpack

pytestmark = pytest.mark.thorough

KILL_WAIT_S = 15
"""KillWait of the cluster: less than the 25 s that a save has elsewhere."""
SAVE_S = 6.0
END_S = 120.0
TOOLS = Path(sys.executable).parent
"""The folder of `tfdist`, which batch scripts start by its name."""


net = hosts_fixture(3, "module")


@pytest.fixture(scope="module")
def cluster(net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Three nodes, h1 to h3."""
    folder = tmp_path_factory.mktemp("slurm")
    try:
        root = unpack(folder)
    except UnavailableError as error:
        pytest.skip(f"no Slurm: {error}")
    with slurm(net, root, folder / "cluster", KILL_WAIT_S) as running:
        yield running


@pytest.fixture
def jobs(cluster: Slurm, tmp_path: Path) -> Iterator["Jobs"]:
    """Submits jobs; fails if a test leaves a process on any node."""
    jobs = Jobs(cluster, tmp_path)
    yield jobs
    cluster.run("scancel", "--user=root")
    assert jobs.left_over() == []


def wait_until(condition: Callable[[], object], what: Callable[[], str], seconds: float = END_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what()}"
        time.sleep(0.1)


class Jobs:
    """The jobs of a test, in a folder of its own."""

    def __init__(self, cluster: Slurm, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.env = {"PATH": os.pathsep.join((str(TOOLS), cluster.environment["PATH"])), "HOME": str(folder)}

    def program(self, text: str) -> str:
        path = self.folder / "train.py"
        path.write_text(text)
        return str(path)

    def run(self, *argv: str, env: dict[str, str] | None = None) -> str:
        return self.cluster.run(*argv, env={**self.env, **(env or {})}, cwd=self.folder, timeout_s=120.0)

    def submit(self, *arguments: str) -> str:
        """Submit the script that `tfdist sbatch` prints; the number of the job."""
        script = self.folder / "job.sh"
        script.write_text(self.run("tfdist", "sbatch", "--sbatch-option", f"output={self.log}", *arguments))
        return self.run("sbatch", "--parsable", str(script)).strip()

    @property
    def log(self) -> Path:
        return self.folder / "job.log"

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_for(self, text: str, number: int = 1) -> None:
        wait_until(
            lambda: self.output.count(text) >= number,
            lambda: f"{number} x {text!r} in the log of the job:\n{self.output}",
        )

    def end_of(self, job: str) -> tuple[str, str]:
        """The state and exit code with which a job ends."""
        wait_until(lambda: not self.run("squeue", "--noheader").strip(), lambda: f"the end of the job:\n{self.output}")
        shown = self.run("scontrol", "show", "job", job)
        return tuple(re.search(rf" {name}=(\S+)", " " + shown)[1] for name in ("JobState", "ExitCode"))

    def outcome(self) -> dict:
        """The outcome of the newest run."""
        run_dir = max((self.folder / "runs").iterdir())
        return json.loads((run_dir / "outcome.json").read_text())

    def saved(self) -> list[str]:
        """The tasks that have saved."""
        return sorted(path.name for path in (self.folder / "ckpt").glob("worker-*"))

    def terminate_sruns(self) -> None:
        """Send SIGTERM to each srun."""
        for line in self.cluster.net.processes():
            _, pid, command = line.split(": ", 2)
            if command.startswith("srun "):
                with suppress(ProcessLookupError):  # the first one to end takes others with it
                    os.kill(int(pid), signal.SIGTERM)

    def left_over(self) -> list[str]:
        daemons = ("slurmd-wlm", "slurmctld-wlm", "slurmscriptd", "slurmstepd")
        deadline = time.monotonic() + CLEAN_S
        while True:
            lines = [line for line in self.cluster.net.processes() if not any(name in line for name in daemons)]
            if not lines or time.monotonic() > deadline:
                return lines
            time.sleep(0.1)


SHOW = (
    "import os, socket\n"
    "names = ('SLURM_CPUS_ON_NODE', 'SLURM_STEP_ID', 'GREETING')\n"
    "print(socket.gethostname(), *(os.environ.get(name, '-') for name in names), flush=True)\n"
)


@pytest.mark.core
def test_multiworker_trains_in_an_allocation(jobs):
    job = jobs.submit(
        "--nodes", "2", "launch", "--strategy", "multiworker", "--preset", "smoke", "--model", "tiny", "--set", "learning_rate=0.01",
        "--steps", "20",
    )  # fmt: skip
    assert jobs.end_of(job) == ("COMPLETED", "0:0"), jobs.output
    (run_dir,) = (jobs.folder / "runs").iterdir()
    assert [task["host"] for task in json.loads((run_dir / "cluster.json").read_text())["tasks"]] == ["h1", "h2"]


def test_sbatch_reads_the_value_of_an_option_as_it_was_given(jobs):
    comment = 'it\'s #1:  "a\\b" \u00e9'
    job = jobs.submit(
        "--nodes", "1", "--sbatch-option", "hold", "--sbatch-option", f"comment={comment}", "launch", "--", "true"
    )
    assert jobs.run("squeue", "--noheader", f"--jobs={job}", "--format=%k") == f"{comment}\n"


def test_tasks_have_all_cores_of_their_nodes_whatever_the_batch_job_asked_for(jobs):
    leaking = {
        "SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2", "SLURM_EXACT": "1", "SLURM_NTASKS_PER_NODE": "3",
        "SLURM_MEM_PER_CPU": "1", "SLURM_MEM_PER_NODE": "10", "SLURM_THREADS_PER_CORE": "1", "SLURM_DISTRIBUTION": "cyclic",
    }  # fmt: skip
    exports = " ".join(f"{name}={value}" for name, value in leaking.items())
    launch = f"tfdist launch --transport srun --strategy multiworker -- python {jobs.program(SHOW)}"
    command = f"export {exports} SLURM_EXPORT_ENV=NONE GREETING=hello; exec {launch}"
    job = jobs.run(
        "sbatch", "--parsable", "--nodes=3", "--exclusive", f"--output={jobs.log}", f"--wrap={command}"
    ).strip()
    assert jobs.end_of(job) == ("COMPLETED", "0:0"), jobs.output
    lines = re.findall(r"^\[worker-\d\] (h\d) (\S+) \S+ (\S+)$", jobs.output, re.MULTILINE)
    assert sorted(lines) == [(host, str(CPUS), "hello") for host in ("h1", "h2", "h3")]


def test_a_heterogeneous_job_uses_the_nodes_of_all_groups(jobs):
    out = jobs.run(
        "salloc", "--nodes=1", "--exclusive", ":", "--nodes=2", "--exclusive",
        "tfdist", "launch", "--transport", "srun", "--strategy", "multiworker", "--", "python", jobs.program(SHOW),
    )  # fmt: skip
    hosts = re.findall(r"^\[worker-\d\] (h\d) (\S+) ", out, re.MULTILINE)
    assert sorted(hosts) == [(host, str(CPUS)) for host in ("h1", "h2", "h3")]


INHERITED = (
    "import json, os\n"
    "config = json.loads(os.environ['TF_CONFIG'])\n"
    "names = ('SLURM_PROCID', 'SLURMD_NODENAME')\n"
    "print(*(os.environ[name] for name in names), config['task']['index'], *config['cluster']['worker'], flush=True)\n"
)


def test_the_tasks_of_a_step_inherit_one_cluster(jobs):
    inherit = ("tfdist", "launch", "--inherit", "auto", "--quiet", "--no-prefix")
    out = jobs.run("srun", "--nodes=3", "--ntasks=5", *inherit, "--", "python", jobs.program(INHERITED))
    ranks, nodes, indices, clusters = zip(*(line.split(" ", 3) for line in sorted(out.splitlines())), strict=True)
    assert ranks == indices == ("0", "1", "2", "3", "4")
    (cluster,) = set(clusters)
    addresses = cluster.split()
    assert [address.partition(":")[0] for address in addresses] == list(nodes)
    assert len(set(addresses)) == 5


def test_a_step_that_distributes_its_tasks_in_another_way_is_refused(jobs):
    step = ("srun", "--nodes=2", "--ntasks=4", "--distribution=cyclic")
    with pytest.raises(RuntimeError, match=r"SLURM_PROCID=1 runs on h2, not on h1; run 'srun .* --distribution=block"):
        jobs.run(*step, "tfdist", "launch", "--inherit", "slurm", "--start-timeout", "3", "--", "true")


SAVES = (
    "import os, signal, sys, time\n"
    "folder = os.environ['TFDIST_CHECKPOINT_DIR']\n"
    "signal.signal(signal.SIGTERM, lambda *_: open(f'{folder}/now', 'w').close())\n"
    "print('ready', flush=True)\n"
    "while not os.path.exists(f'{folder}/now'): time.sleep(0.05)\n"
    f"time.sleep({SAVE_S})\n"
    "open(f\"{folder}/{os.environ['TFDIST_TASK']}\", 'w').close()\n"
    "sys.exit(42)\n"
)
"""All tasks save as soon as one of them has received SIGTERM."""
STUBBORN = (
    "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    "while True: signal.pause()\n"
)


def saving(jobs: Jobs, program: str, *options: str) -> str:
    """Submit a job of two tasks with a folder for checkpoints, and wait until both are ready."""
    folder = jobs.folder / "ckpt"
    folder.mkdir()
    job = jobs.submit(
        "--nodes", "2", "launch", "--strategy", "multiworker", "--checkpoint-dir", str(folder), *options, "--", "python", jobs.program(program)
    )  # fmt: skip
    jobs.wait_for("] ready\n", 2)
    return job


@pytest.mark.parametrize("srun_too", [False, True], ids=["linuxproc", "cgroup"])
def test_scancel_leaves_a_save_the_time_that_slurm_does(srun_too, jobs):
    """With proctrack/cgroup, scancel signals srun, too; with proctrack/linuxproc, as here, it does not."""
    job = saving(jobs, SAVES)
    started = time.monotonic()
    jobs.run("scancel", job)
    if srun_too:
        jobs.terminate_sruns()
    state, _ = jobs.end_of(job)
    assert time.monotonic() - started > SAVE_S
    assert state == "CANCELLED"
    assert jobs.saved() == ["worker-0", "worker-1"], jobs.output
    outcome = jobs.outcome()
    assert (outcome["exit_code"], outcome["signal"]) == (42, 15)


def test_tasks_that_do_not_end_are_killed_before_slurm_kills_the_launcher(jobs):
    job = saving(jobs, STUBBORN)
    jobs.run("scancel", job)
    jobs.end_of(job)
    outcome = jobs.outcome()  # Slurm's SIGKILL would have left none
    assert (outcome["exit_code"], outcome["reason"]) == (143, "interrupted by SIGTERM")


LIVES = (
    "import os, signal, time\n"
    "for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, lambda number, _: print('got', number, flush=True))\n"
    "print('ready', flush=True)\n"
    "while not os.path.exists(os.environ['TFDIST_CHECKPOINT_DIR'] + '/end'): time.sleep(0.05)\n"
)


def test_agents_ignore_the_signals_that_slurm_sends_to_all_tasks(jobs):
    job = saving(jobs, LIVES)
    for number in (10, 12):
        jobs.run("scancel", f"--signal={number}", job)
        jobs.wait_for(f"[worker-1] got {number}\n")
    (jobs.folder / "ckpt/end").touch()
    assert jobs.end_of(job) == ("COMPLETED", "0:0"), jobs.output


def test_usr2_to_the_batch_script_saves_and_ends_with_42(jobs):
    job = saving(jobs, SAVES)
    assert "--signal=B:USR2@180" in (jobs.folder / "job.sh").read_text()
    jobs.run("scancel", "--signal=USR2", "--batch", job)
    assert jobs.end_of(job) == ("FAILED", "42:0"), jobs.output
    assert jobs.saved() == ["worker-0", "worker-1"]
    assert jobs.outcome()["reason"].startswith("interrupted by SIGUSR2")


def test_a_training_that_is_requeued_continues_from_its_checkpoint(jobs):
    folder = jobs.folder / "ckpt"
    job = jobs.submit(
        "--nodes", "2", "launch", "--strategy", "multiworker", "--preset", "smoke", "--model", "tiny", "--steps", "1000",
        "--checkpoint-every", "50", "--checkpoint-dir", str(folder), "--resume", "auto", "--requeue", "2",
    )  # fmt: skip
    wait_until(lambda: list(folder.glob("step-*.json")), lambda: f"a checkpoint\n{jobs.output}")
    jobs.run("scancel", "--signal=USR2", "--batch", job)
    jobs.wait_for("tfdist: requeued (1 of 2)\n")
    assert jobs.end_of(job) == ("COMPLETED", "0:0"), jobs.output
    (step,) = re.findall(r"resumes \S+ from step (\d+)\n", jobs.output)
    assert 0 < int(step) < 1000
    assert "Restarts=1 " in jobs.run("scontrol", "show", "job", job)
    assert jobs.outcome()["status"] == "ok"


TRAINING = (
    "--strategy",
    "multiworker",
    "--preset",
    "smoke",
    "--model",
    "tiny",
    "--steps",
    "100000",
    "--checkpoint-every",
    "20",
)
PREEMPTION = str(Path(__file__).with_name("save_on_preemption.py"))


@pytest.mark.parametrize(
    ("options", "program"),
    [(TRAINING, ()), (("--strategy", "multiworker"), ("--", "python", PREEMPTION))],
    ids=["built-in", "PreemptionCheckpointHandler"],
)
def test_scancel_lets_a_training_save_though_each_task_gets_its_signal(options, program, jobs):
    folder = jobs.folder / "ckpt"
    job = jobs.submit("--nodes", "2", "launch", *options, "--checkpoint-dir", str(folder), *program)
    if program:
        jobs.wait_for("] trains\n", 2)
    else:
        wait_until(lambda: list(folder.glob("step-*.json")), lambda: f"a checkpoint\n{jobs.output}")
    jobs.run("scancel", job)
    jobs.end_of(job)
    outcome = jobs.outcome()
    assert (outcome["exit_code"], outcome["signal"]) == (42, 15), jobs.output
    assert {exit["code"] for exit in outcome["exits"].values()} == {42}


def test_a_killed_agent_is_noticed_though_srun_may_open_no_connection(jobs):
    job = saving(jobs, STUBBORN)
    for line in jobs.cluster.net.processes():
        namespace, pid, command = line.split(": ", 2)
        if namespace.endswith("-h2") and "#tfdist-" in command:
            with suppress(ProcessLookupError):  # a reaper dies with its agent
                os.kill(int(pid), signal.SIGKILL)
    started = time.monotonic()
    assert jobs.end_of(job) == ("FAILED", "69:0"), jobs.output
    assert time.monotonic() - started < 15.0
    assert "lost the agent on h2" in jobs.output
