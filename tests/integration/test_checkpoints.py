"""Trainings that are killed, preempted or resumed continue as if nothing had happened."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.disks import small_disk
from tfdist.jobs.tasks import plan_training
from tfdist.launch.agents.messages import Event, Started
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import create_run_dir
from tfdist.launch.runs.writer import RunWriter
from tfdist.models.checkpoints import Checkpointing, list_checkpoints
from tfdist.models.record import Record
from tfdist.models.run import run_training
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Api, Keras, Precision, StrategyName

from .training import MOBILE, TINY, stderr

pytestmark = pytest.mark.thorough

STEPS, EVERY = 24, 6
LONG = 60
"""Steps of a training that is killed at step 14: it is far from its end when the kill comes. MobileNetV2 is with STEPS."""
SPEC = replace(TINY, steps=STEPS, steps_per_window=3, warmup_steps=2, learning_rate=0.01, cores_per_device=None)
MIRRORED = replace(SPEC, strategy=StrategyName.MIRRORED, devices=2)
MULTI_WORKER = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=2)
PS = replace(SPEC, strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=2)
FIT = {"api": Api.FIT, "steps_per_window": 1, "warmup_steps": 0}
"""fit reports the mean loss of a window, so that only windows of one step can be compared."""

Watch = Callable[["Run", str, dict[str, Any]], None]


@dataclass
class Run:
    """A job, and what its tasks have reported."""

    folder: Path
    pids: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    outcome: Outcome | None = None
    record: Record | None = None

    def kill(self, task: str, number: int) -> None:
        os.kill(self.pids[task], number)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    @property
    def losses(self) -> dict[int, float]:
        """Losses by step; of steps that were trained twice, the second one."""
        return {each["step"]: each["loss"] for each in self.named("step") if each.get("loss") is not None}

    @property
    def saved(self) -> list[int]:
        return [each["step"] for each in self.named("checkpoint")]

    @property
    def stderr(self) -> str:
        return stderr(self.folder)


def run(
    spec: TrainingSpec,
    folder: Path,
    saving: Checkpointing,
    watch: Watch = lambda run, task, event: None,
    restarts: int = 0,
) -> Run:
    """Run a job; `watch` sees every event of a task as it arrives."""
    result = Run(folder)

    def on_message(message: object) -> None:
        if isinstance(message, Started):
            result.pids[message.task] = message.pid
        if isinstance(message, Event):
            result.events.append(dict(message.event))
            watch(result, message.task, dict(message.event))

    job = plan_training(spec, local_machines(), env=saving.to_env())
    policy = Policy(timeout_s=300.0, max_restarts=restarts)
    with RunWriter(create_run_dir(folder, "training")) as writer:
        result.outcome, result.record = run_training(job, spec, writer, policy, {"test": on_message}, arm="test")
    return result


def succeeded(done: Run) -> Run:
    assert done.record is not None
    assert done.record.exit_code == 0, f"{done.record.reason}\n{done.stderr}"
    return done


def once(task: str, step: int, act: Callable[[Run], None], saved: int = 0) -> Watch:
    """Act once, when this task has reported this step or a later one, and a checkpoint of step `saved` or later is there."""
    acted = []

    def watch(run: Run, reporter: str, event: dict[str, Any]) -> None:
        arrived = reporter == task and event["event"] == "step" and event["step"] >= step
        if not acted and arrived and max(run.saved, default=0) >= saved:
            acted.append(step)
            act(run)

    return watch


def killed_at(reporter: str, step: int, victim: str | None = None, saved: int = 2 * EVERY) -> Watch:
    """Kill the victim, or the reporter itself, once the reporter has passed this step and a checkpoint is stored.

    Checkpoints are stored beside the training, which may have gone some steps further by then.
    """
    return once(reporter, step, lambda run: run.kill(victim or reporter, signal.SIGKILL), saved)


def updates(done: Run) -> set[tuple[int, int]]:
    assert done.record is not None
    return {(rank.updates_applied, rank.examples_applied) for rank in done.record.ranks}


# Each is a way to store and restore that another one does not take: API, Keras, loss scale, batch norm, placement of
# variables, data without a file, several steps a call.
CASES = {
    "synthetic": replace(SPEC, dataset="synthetic", steps_per_call=2),
    "mirrored": MIRRORED,
    "float16": replace(MIRRORED, precision=Precision.MIXED_FLOAT16),
    "multiworker": replace(MULTI_WORKER, model=MOBILE.model, alpha=0.35),
    "multiworker-fit": replace(MULTI_WORKER, **FIT),
    "multiworker-keras-3": replace(MULTI_WORKER, keras=Keras.THREE),
    "central-storage": replace(SPEC, strategy=StrategyName.CENTRAL_STORAGE, devices=2),
    "float16-keras-3": replace(SPEC, keras=Keras.THREE, precision=Precision.MIXED_FLOAT16, **FIT),
}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(each if each.model is MOBILE.model else replace(each, steps=LONG), id=name)
        for name, each in CASES.items()
    ],
)
def test_a_killed_and_restarted_training_equals_an_uninterrupted_one(spec, tmp_path):
    """Killed at step 14 or later, it continues from a checkpoint, that of step 12 or a later one."""
    plain = succeeded(run(spec, tmp_path / "plain", Checkpointing(str(tmp_path / "a"), every_steps=EVERY)))
    task = "worker-1" if spec.workers > 1 else "worker-0"
    saving = Checkpointing(str(tmp_path / "b"), every_steps=EVERY)
    killed = succeeded(run(spec, tmp_path / "killed", saving, killed_at(task, 14), restarts=1))
    (resumed,) = killed.named("resumed")
    assert resumed["step"] in range(12, spec.steps, EVERY)
    assert resumed["examples"] == resumed["step"] * spec.global_batch_size
    assert plain.saved == list(range(EVERY, spec.steps + 1, EVERY))
    compared = plain.losses.keys() & killed.losses.keys()
    assert spec.steps in compared
    assert len(compared) >= 8
    for step in compared:
        assert killed.losses[step] == pytest.approx(plain.losses[step], rel=1e-4), step
    assert updates(killed) == updates(plain) == {(spec.steps, spec.steps * spec.global_batch_size // spec.workers)}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(PS, id="loop", marks=pytest.mark.core),
        pytest.param(replace(PS, api=Api.FIT), id="fit"),
        pytest.param(replace(PS, variable_partitioner="fixed:2", steps_per_call=2), id="partitioned"),
    ],
)
def test_a_killed_chief_continues_and_all_steps_are_applied(spec, tmp_path):
    spec = replace(spec, steps=LONG)
    saving = Checkpointing(str(tmp_path / "saved"), every_steps=EVERY)
    done = succeeded(run(spec, tmp_path / "runs", saving, killed_at("chief-0", 14), restarts=1))
    (resumed,) = done.named("resumed")
    assert resumed["step"] in range(12, LONG, EVERY)
    assert updates(done) == {(LONG, LONG * spec.batch_size)}
    assert done.saved[-1] == LONG


@pytest.mark.parametrize(
    ("spec", "task", "number"),
    [
        pytest.param(MULTI_WORKER, "worker-1", signal.SIGTERM, id="multiworker", marks=pytest.mark.core),
        pytest.param(MULTI_WORKER, "worker-0", signal.SIGUSR1, id="multiworker-usr1"),
        pytest.param(replace(MIRRORED, api=Api.FIT), "worker-0", signal.SIGTERM, id="fit"),
        pytest.param(PS, "chief-0", signal.SIGTERM, id="parameter-server"),
    ],
)
def test_a_signal_to_one_task_saves_the_job_and_it_can_be_resumed(spec, task, number, tmp_path):
    spec = replace(spec, steps=4000)
    saving = Checkpointing(str(tmp_path / "saved"))
    done = run(spec, tmp_path / "runs", saving, once(task, 20, lambda run: run.kill(task, number)))
    assert done.outcome is not None
    leading = [name for name in done.outcome.exits if name.startswith(("worker", "chief"))]
    if spec.strategy is not StrategyName.PARAMETER_SERVER:
        assert {done.outcome.exits[name].code for name in leading} == {42}, done.stderr
    assert done.outcome.exits[task].code == 42, done.stderr
    (step,) = done.saved
    assert 20 <= step < 4000
    assert [manifest.step for manifest in list_checkpoints(saving.folder).complete] == [step]
    again = succeeded(run(replace(spec, steps=step + 10), tmp_path / "again", replace(saving, resume=True)))
    assert {updated for updated, _ in updates(again)} == {step + 10}


def resume(spec: TrainingSpec, tmp_path: Path, steps: int = STEPS, **saving: Any) -> Run:
    folder = str(tmp_path / "saved")
    options = Checkpointing(folder, every_steps=EVERY, resume=True)
    return run(replace(spec, steps=steps), tmp_path / "resumed", replace(options, **saving))


@pytest.fixture(scope="module")
def trained_half(tmp_path_factory):
    folder = tmp_path_factory.mktemp("half")
    saving = Checkpointing(str(folder / "saved"), every_steps=EVERY)
    succeeded(run(replace(SPEC, steps=12), folder / "runs", saving))
    return folder / "saved"


@pytest.fixture
def half(trained_half, tmp_path):
    """The folder of a training of 12 steps."""
    return Path(shutil.copytree(trained_half, tmp_path / "saved"))


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(half, tmp_path):
    data = half / "step-00000012.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    done = succeeded(resume(SPEC, tmp_path))
    assert [event["step"] for event in done.named("resumed")] == [6]
    assert f"warning: {half}: step-00000012 is damaged" in done.stderr
    assert updates(done) == {(STEPS, STEPS * SPEC.batch_size)}
    for manifest in half.glob("*.json"):
        manifest.write_text("{}")
    refused = resume(SPEC, tmp_path)
    assert refused.record is not None
    assert refused.record.exit_code == 2
    assert "no checkpoint can be used" in refused.record.reason


def test_another_training_is_refused_and_a_finished_one_has_nothing_left(half, tmp_path):
    finished = succeeded(resume(SPEC, tmp_path, steps=12))
    assert finished.record is not None
    assert finished.record.ranks[0].windows == ()
    assert finished.record.ranks[0].updates_applied == 12
    changed = resume(replace(SPEC, batch_size=16), tmp_path).record
    used = run(SPEC, tmp_path / "used", Checkpointing(str(half))).record
    for record, text in ((changed, "--batch-size 8 (now 16)"), (used, "it holds a checkpoint of step 12")):
        assert record is not None
        assert record.exit_code == 2
        assert text in record.reason


def test_with_fewer_workers_the_remaining_examples_are_trained(tmp_path):
    saving = Checkpointing(str(tmp_path / "saved"), every_steps=EVERY)
    succeeded(run(replace(MULTI_WORKER, steps=12), tmp_path / "two", saving))
    done = succeeded(resume(replace(MULTI_WORKER, workers=1, examples=STEPS * 16), tmp_path))
    assert updates(done) == {(12 + 24, STEPS * 16)}
    assert done.saved[-1] == 36


def test_saves_by_time_are_those_of_all_ranks(tmp_path):
    saving = Checkpointing(str(tmp_path / "saved"), every_s=1.0, keep=2)
    done = succeeded(run(replace(MULTI_WORKER, steps=1500), tmp_path / "runs", saving))
    assert len(done.saved) >= 2
    assert len(list_checkpoints(saving.folder).complete) == 2


def test_the_trace_of_the_first_step_does_not_make_all_windows_short(tmp_path):
    saving = Checkpointing(str(tmp_path / "saved"), every_steps=2 * EVERY)
    done = succeeded(run(replace(SPEC, warmup_steps=1), tmp_path / "runs", saving))
    assert done.record is not None
    assert max(window.steps for window in done.record.ranks[0].windows) > 1


@pytest.fixture
def disk(tmp_path):
    """A file system with 1 MiB."""
    with small_disk(tmp_path, 1024) as folder:
        yield folder


@pytest.mark.parametrize("recovers", [True, False], ids=["with space at the end", "without"])
def test_a_training_continues_although_the_disk_is_full(disk, tmp_path, recovers):
    def watch(run: Run, task: str, event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and event["step"] == EVERY:
            with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while filler.write(bytes(4096)):
                    pass
        if recovers and event["event"] == "step" and event["step"] >= 150:
            (disk / "filler").unlink(missing_ok=True)

    spec = replace(SPEC, steps=300, dataset="synthetic")
    done = run(spec, tmp_path / "runs", Checkpointing(str(disk / "saved"), every_steps=EVERY, keep=2), watch)
    assert done.record is not None
    warning = f"could not be saved in {disk / 'saved'} ("
    assert warning in done.stderr
    assert "No space left on device" in done.stderr
    steps = [manifest.step for manifest in list_checkpoints(str(disk / "saved")).complete]
    if recovers:
        assert done.record.exit_code == 0, done.stderr
        assert steps[0] == 300
    else:
        assert done.record.exit_code == 1
        assert "the trained model could not be saved" in done.record.reason
        assert steps
    assert json.loads((disk / "saved" / f"step-{steps[0]:08d}.json").read_text())["step"] == steps[0]
