"""Trainings on a real Ray cluster of two nodes, by the programs that docs/engines.md shows; and what ends them."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

from .conftest import hosts_fixture
from .launcher import CLEAN_S
from .namespaces import Network
from .ray_cluster import EXAMPLES, RayCluster, UnavailableError, install, ray_cluster

pytestmark = pytest.mark.thorough

END_S = 240.0
"""Time limit of a job: on a busy machine Ray needs a minute to start one."""
TRAINING = (
    "--model", "tiny", "--dataset", "digits", "--batch-size", "8", "--image-size", "32", "--set", "steps_per_window=3",
    "--set", "warmup_steps=2", "--steps",
)  # fmt: skip
FAILS = """\
import os
if os.environ["TFDIST_TASK"] == "worker-1":
    raise ValueError("bad batch")
import tensorflow as tf
from tfdist.strategies import current
strategy = current()
strategy.reduce("sum", strategy.run(lambda: tf.ones(())), axis=None)
"""


net = hosts_fixture(2, "module")


@pytest.fixture(scope="module")
def cluster(net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Two nodes, h1 and h2, with a CPU each."""
    folder = tmp_path_factory.mktemp("ray")
    try:
        python = install(folder / "venv")
    except UnavailableError as error:
        pytest.skip(f"no Ray: {error}")
    with ray_cluster(net, python, folder) as running:
        yield running


@pytest.fixture
def ray(cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster; fails if a test leaves a process on any node."""
    yield cluster
    try:
        wait_until(lambda: not cluster.started_by_jobs(), CLEAN_S)
    finally:
        left = cluster.started_by_jobs()
        for line in left:
            os.kill(int(line.split(": ")[1]), signal.SIGKILL)
    assert left == []


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and output, without colours."""
    out, _ = process.communicate(timeout=END_S)
    return process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", out)


def final_losses(runs: Path) -> list[float]:
    """The loss of each task, from the outcomes of its launchers."""
    outcomes = [json.loads(path.read_text()) for path in runs.glob("*/outcome.json")]
    return [loss for outcome in outcomes for loss in outcome["loss"].values()]


def steps_reported(runs: Path) -> int:
    """Number of tasks that have reported a step."""
    return sum('"step"' in path.read_text() for path in runs.glob("*/events.jsonl"))


@pytest.fixture
def job(ray: RayCluster, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A submitted training that does not end, after its first steps."""
    submitted = ray.submit("python", "ray_job.py", "2", "--runs-dir", str(tmp_path), *TRAINING, "1000000")
    wait_until(lambda: steps_reported(tmp_path) == 2 or submitted.poll() is not None, END_S)
    assert submitted.poll() is None, ended(submitted)
    return submitted


def status(ray: RayCluster, name: str) -> str:
    """The status of a job: RUNNING, STOPPED, ..."""
    code, out = ended(ray.start(ray.net.hub, "ray", "job", "status", name))
    assert code == 0, out
    return re.findall(r"Status for job '.*': (\w+)|Job '.*' (succeeded|failed|stopped|was stopped)", out)


def test_a_task_per_node_and_ray_train_have_equal_losses(ray, tmp_path):
    for program in ("ray_job.py", "ray_train.py"):
        code, out = ended(ray.submit("python", program, "2", "--runs-dir", str(tmp_path / program), *TRAINING, "24"))
        assert code == 0, out
        assert {"worker 0", "worker 1"} == set(re.findall(r"this task, from TF_CONFIG: (worker \d)", out)), out
    losses = [final_losses(tmp_path / program) for program in ("ray_job.py", "ray_train.py")]
    assert [len(each) for each in losses] == [2, 2]
    assert len({*losses[0], *losses[1]}) == 1


@pytest.mark.parametrize("program", ["ray_job.py", "ray_train.py"])
def test_a_worker_that_raises_is_named(program, ray, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    own = ("--runs-dir", str(tmp_path / "runs"), "--", "python", str(tmp_path / "train.py"))
    code, out = ended(ray.submit("python", program, "2", *own))
    print(out)
    assert code == 1, out
    assert "tfdist: worker-1 exited with code 1: ValueError: bad batch" in out


def test_a_node_that_dies_is_named(ray, job, tmp_path):
    ray.kill(ray.net.hosts[1].namespace)
    try:
        code, out = ended(job)
    finally:
        ray.start_node(ray.net.hosts[1])
    print(out)
    assert code == 1, out


def test_job_stop_ends_a_job_that_ctrl_c_leaves(ray, job, tmp_path):
    os.killpg(job.pid, signal.SIGINT)
    _, out = ended(job)
    (name,) = set(re.findall(r"Job '(\w+)' submitted", out))
    print(out[-3000:], status(ray, name))
    assert ray.started_by_jobs()
    code, out = ended(ray.start(ray.net.hub, "ray", "job", "stop", name))
    print("STOP", code, out)
    print(status(ray, name), [path.read_text() for path in tmp_path.glob("*/outcome.json")])


def test_ctrl_c_at_the_driver_ends_all(ray, tmp_path):
    program = ("python", str(EXAMPLES / "ray_job.py"), "2", "--runs-dir", str(tmp_path), *TRAINING, "1000000")
    driver = ray.start(ray.net.hosts[0].namespace, *program)
    wait_until(lambda: steps_reported(tmp_path) == 2 or driver.poll() is not None, END_S)
    os.killpg(driver.pid, signal.SIGINT)
    code, out = ended(driver)
    print(code, out)
    print([path.read_text() for path in tmp_path.glob("*/outcome.json")])


def test_a_ray_worker_that_is_killed_leaves_nothing(ray, job, tmp_path):
    workers = [line for line in ray.net.processes() if ": ray::launch" in line]
    os.kill(int(workers[0].split(": ")[1]), signal.SIGKILL)
    code, out = ended(job)
    print(code, out)
