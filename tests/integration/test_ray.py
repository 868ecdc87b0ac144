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


def final_losses(runs: Path) -> dict[str, float]:
    """The loss of each task, from the records of its launchers."""
    records = [json.loads(path.read_text()) for path in runs.glob("*/records.jsonl")]
    return {rank["task"]: rank["windows"][-1]["loss"] for record in records for rank in record["ranks"]}


def steps_reported(runs: Path) -> int:
    """Number of tasks that have reported a step."""
    return sum('"step"' in path.read_text() for path in runs.glob("*/events.jsonl"))


def options(folder: Path) -> tuple[str, ...]:
    """Options of a training that does not end by itself, and whose runs and checkpoints are in this folder."""
    saving = ("--checkpoint-every", "1h", "--checkpoint-dir", str(folder / "ckpt"))
    return ("--runs-dir", str(folder), *saving, *TRAINING, "1000000")


def wait_for_steps(process: "subprocess.Popen[str]", runs: Path) -> None:
    """Wait until both tasks have reported a step."""
    wait_until(lambda: steps_reported(runs) == 2 or process.poll() is not None, END_S)
    assert process.poll() is None, ended(process)


@pytest.fixture
def job(ray: RayCluster, tmp_path: Path) -> "subprocess.Popen[str]":
    """A submitted training that does not end by itself, after its first steps."""
    submitted = ray.submit("python", "ray_job.py", "2", *options(tmp_path))
    wait_for_steps(submitted, tmp_path)
    return submitted


def test_the_page_shows_the_programs():
    page = (EXAMPLES.parent / "docs" / "engines.md").read_text()
    (block,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    program = (EXAMPLES / "ray_train.py").read_text()
    assert [line for line in block.splitlines() if line not in program.splitlines()] == []
    assert "\n    ray job submit --working-dir examples -- python ray_job.py 2 " in page


def test_a_task_per_node_and_ray_train_have_equal_losses(ray, tmp_path):
    losses = set()
    for program in ("ray_job.py", "ray_train.py"):
        code, out = ended(ray.submit("python", program, "2", "--runs-dir", str(tmp_path / program), *TRAINING, "24"))
        assert code == 0, out
        of_task = final_losses(tmp_path / program)
        assert sorted(of_task) == ["worker-0", "worker-1"]
        losses |= set(of_task.values())
    assert len(losses) == 1


@pytest.mark.parametrize("program", ["ray_job.py", "ray_train.py"])
def test_a_worker_that_raises_is_named(program, ray, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    own = ("--runs-dir", str(tmp_path / "runs"), "--", "python", str(tmp_path / "train.py"))
    code, out = ended(ray.submit("python", program, "2", *own))
    assert code == 1, out
    assert "worker-1 exited with code 1: ValueError: bad batch" in out
    if program == "ray_job.py":
        assert re.search(r"^worker 1 on .*: exit code 1: .*ValueError: bad batch", out, re.MULTILINE), out


def test_a_job_that_needs_more_nodes_is_refused(ray):
    code, out = ended(ray.submit("python", "ray_job.py", "3", "--preset", "smoke"))
    assert code == 1, out
    assert "fewer than 3 nodes have 1 CPUs and 0 GPUs free" in out


def test_a_wrong_option_is_no_killed_task(ray):
    code, out = ended(ray.submit("python", "ray_job.py", "2", "--presett", "smoke"))
    assert code == 1, out
    assert "--presett: no such option; did you mean --preset?" in out
    assert re.search(r"^worker . on .*: exit code 2$", out, re.MULTILINE), out


def test_a_node_that_dies_is_named(ray, job):
    alive, dead = ray.net.hosts
    ray.kill(dead.namespace)
    try:
        code, out = ended(job)
    finally:
        ray.start_node(dead)
    assert code == 1, out
    by_tfdist = rf"^worker \d on {alive.address}:2222: exit code 1: .* \({dead.address}:2222\) no longer answered"
    by_ray = rf"^worker \d on {dead.address}:2222: "
    assert re.search(f"{by_tfdist}|{by_ray}", out, re.MULTILINE), out


def test_a_worker_of_ray_that_is_killed_is_named(ray, job):
    workers = [line.split(": ")[1] for line in ray.net.processes() if line.split(": ", 2)[2].startswith("ray::launch")]
    os.kill(int(workers[0]), signal.SIGKILL)
    code, out = ended(job)
    assert code == 1, out
    assert re.search(
        r"^worker \d on .*: (The worker died unexpectedly|exit code 1: .* no longer answered)", out, re.MULTILINE
    ), out


def saved_steps(folder: Path) -> list[str]:
    """The checkpoints of a training."""
    return sorted(path.name for path in (folder / "ckpt").glob("step-*.json"))


def test_job_stop_ends_a_job_that_goes_on_after_ctrl_c_at_job_submit(ray, job, tmp_path):
    os.killpg(job.pid, signal.SIGINT)
    _, out = ended(job)
    (name,) = re.findall(r"Job '(\w+)' submitted", out)
    code, out = ended(ray.start(ray.net.hub, "ray", "job", "status", name))
    assert (code, "RUNNING" in out) == (0, True), out
    code, out = ended(ray.start(ray.net.hub, "ray", "job", "stop", name))
    assert (code, "stopped" in out) == (0, True), out
    wait_until(lambda: saved_steps(tmp_path))  # by tasks whose launchers Ray has killed


def test_ctrl_c_at_the_driver_ends_all(ray, tmp_path):
    driver = ray.start(ray.net.hosts[0].namespace, "python", str(EXAMPLES / "ray_job.py"), "2", *options(tmp_path))
    wait_for_steps(driver, tmp_path)
    os.killpg(driver.pid, signal.SIGINT)
    code, out = ended(driver)
    assert code != 0, out
    wait_until(lambda: saved_steps(tmp_path))  # by tasks whose launchers Ray has killed
