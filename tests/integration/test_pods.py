"""Manifests of `tfdist manifest`, in pods: from an empty volume to a trained model, also if a pod is killed."""

import fnmatch
import json
import os
import signal
import time

import pytest
import yaml

from tests.launch.kubernetes.kubelet import with_jobset
from tfdist.cli.command import run

from . import namespaces
from .pods import JobSetRun, missing, pods_of

TRAINING = (
    "--preset", "smoke", "--model", "tiny", "--dataset", "digits", "--steps", "400", "--set", "steps_per_window=3",
    "--set", "warmup_steps=2", "--checkpoint-every", "20",
)  # fmt: skip
MULTI_WORKER = ("--strategy", "multiworker", "--workers", "2")
SERVED = ("--strategy", "parameter-server", "--workers", "1", "--ps", "1")


def jobset(capsys: pytest.CaptureFixture[str], *arguments: str, kind: str = "jobset") -> dict:
    """The JobSet that `tfdist manifest` prints, after its NetworkPolicy, or that Trainer creates of what it prints."""
    options = ("--image", "image", "--name", "demo", "--pvc", "data", "--kind", kind)
    assert run(["manifest", *options, "launch", *arguments]) == 0
    (_, document) = with_jobset(yaml.safe_load_all(capsys.readouterr().out))
    return document


@pytest.fixture
def pods(tmp_path, survivors):
    """Pods of a JobSet; no process may be left over."""
    why = namespaces.missing() or missing()
    if why:
        pytest.skip(f"no pods in network namespaces: {why}")
    yield lambda document: pods_of(document, tmp_path)
    deadline = time.monotonic() + 15
    while survivors() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert survivors() == []


def saved_steps(set_run: JobSetRun) -> list[int]:
    """The steps of the checkpoints on the volume."""
    names = (name for _, _, names in os.walk(set_run.folder / "volume") for name in names)  # folders may disappear
    return sorted(int(name[len("step-") : -len(".json")]) for name in fnmatch.filter(names, "step-*.json"))


def resumed_steps(set_run: JobSetRun) -> list[int]:
    """The steps from which attempts have continued."""
    lines = [
        line for path in (set_run.folder / "volume").rglob("events.jsonl") for line in path.read_text().splitlines()
    ]
    events = [json.loads(line)["event"] for line in lines if '"resumed"' in line and '"event"' in line]
    return [event["step"] for event in events if event["event"] == "resumed"]


class Killer:
    """Kills a pod of the first attempt once two checkpoints are saved."""

    def __init__(self, pod: str) -> None:
        self.pod, self.done, self.saved = pod, False, 0

    def __call__(self, set_run: JobSetRun) -> None:
        """Look for checkpoints."""
        steps = saved_steps(set_run)
        if not self.done and len(steps) > 1:
            set_run.pods[self.pod].signal(signal.SIGKILL)
            self.done, self.saved = True, steps[-1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("strategy", "kind", "victim"),
    [
        pytest.param(MULTI_WORKER, "jobset", "worker-1", marks=pytest.mark.core),
        (SERVED, "jobset", "ps-0"),
        (MULTI_WORKER, "trainjob", "node-1"),
    ],
)
def test_a_killed_pod_restarts_the_set_which_continues_from_the_checkpoint(strategy, kind, victim, pods, capsys):
    document = jobset(capsys, *strategy, *TRAINING, "--max-restarts", "2", kind=kind)
    killer = Killer(victim)
    with pods(document) as set_run:
        assert set_run.run(killer) == "Completed", set_run.logs()
        assert (set_run.restarts, set_run.counted) == (1, 1)
        (step,) = resumed_steps(set_run)
        assert 0 < killer.saved <= step < 400
        assert saved_steps(set_run)[-1] == 400
        first = next(iter(set_run.pods.values()))
        assert first.message.startswith("exit code 0: done in ")


PROGRAM = 'test "$TFDIST_ATTEMPT" = 1 && exit 0; test "$TFDIST_TASK" = worker-1 && exit {code}; sleep 60'


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "result", "restarts", "counted"),
    [
        (2, "Failed: worker-1: PodFailurePolicy: Container tfdist for pod default/p-0 failed with exit code 2", 0, 0),
        (42, "Completed", 1, 0),
        (3, "Completed", 1, 1),
    ],
)
def test_exit_codes_decide_about_the_set(code, result, restarts, counted, pods, capsys):
    document = jobset(capsys, *MULTI_WORKER, "--max-restarts", "1", "--", "sh", "-c", PROGRAM.format(code=code))
    with pods(document) as set_run:
        assert set_run.run().startswith(result), set_run.logs()
        assert (set_run.restarts, set_run.counted) == (restarts, counted)
        (failed,) = [pod for pod in [*set_run.ended, *set_run.pods.values()] if pod.exit_code == code]
        assert failed.message.startswith(f"exit code {code}: worker-1 exited with code {code}")


@pytest.mark.thorough
def test_without_restarts_the_first_failure_ends_the_set(pods, capsys):
    with pods(jobset(capsys, *MULTI_WORKER, "--", "sh", "-c", PROGRAM.format(code=3))) as set_run:
        assert set_run.run() == "Failed: worker-1: BackoffLimitExceeded: Job has reached the specified backoff limit"
