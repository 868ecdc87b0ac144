"""What `check` makes of each ending, and which strategies run at the same time. Its arms are simulated."""

from dataclasses import dataclass, field, replace

import pytest

from tests.bench.fake_arms import FakeArms
from tfdist.bench.arm_process import HINT, Ended, Progressed
from tfdist.bench.check import Checker, plan_check, result
from tfdist.launch.agents.messages import Event
from tfdist.launch.doctor.checks import Verdict
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines
from tfdist.models.record import RankRecord, Record, RecordStatus, Window
from tfdist.models.run import NO_STEP
from tfdist.models.strategy_check import StrategyCheck
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

MIRRORED = StrategyChoice(StrategyName.MIRRORED, devices=2).to_json()
ONE, TWO, SERVERS = StrategyName.ONE_DEVICE, StrategyName.MIRRORED, StrategyName.PARAMETER_SERVER
RANK = RankRecord("worker-0", "box", 2, (Window(1, 64, 1.0, 1.0), Window(2, 128, 1.0, 1.0)), (), {}, 10, 10)


def record(status=RecordStatus.INTERRUPTED, reason="", spec=MIRRORED, **values):
    values = {"strategy_check": StrategyCheck.CONFIRMED, "ranks": (RANK,), **values}
    return Record("mirrored", 0, spec, status, reason, 0, **values)


def row(record, *, enough=False, failed_at="", unmeasured=False):
    checked = result(record, enough, failed_at, unmeasured, 60.0)
    return str(checked.verdict), checked.text, checked.fix


def test_a_program_that_trained_has_its_replicas_and_examples():
    expected = ("ok", "it trains: 2 replicas in sync, 64 examples in a step", "")
    assert row(record(), enough=True) == row(record(RecordStatus.OK)) == expected
    assert result(record(), True, "", False, 60.0).host == "2 devices"
    servers = StrategyChoice(SERVERS, workers=2, ps=1).to_json()
    assert row(record(spec=servers), enough=True)[1] == "it trains: 64 examples in a step of each worker"
    assert row(record(ranks=()), enough=True)[1] == "it trains under MirroredStrategy"
    assert row(record(ranks=(), spec=StrategyChoice().to_json()), enough=True)[1] == "it ran without a failure"


@pytest.mark.parametrize(("check", "verdict"), [(StrategyCheck.REFUTED, "failed"), (StrategyCheck.UNKNOWN, "warning")])
def test_a_strategy_that_is_not_confirmed_has_the_fix(check, verdict):
    note = "its model was built without the strategy (train.py:3); use the scope"
    expected = (verdict, "its model was built without the strategy (train.py:3)", "use the scope")
    assert row(record(strategy_check=check, strategy_note=note), enough=True) == expected


def test_a_failure_has_its_line_and_hint():
    failed = record(RecordStatus.FAILED, f"worker-0 exited with code 1: ValueError{HINT}use tf.keras")
    expected = ("failed", "worker-0 exited with code 1: ValueError (train.py:7)", "use tf.keras")
    assert row(failed, failed_at="train.py:7") == expected


def test_a_program_without_measure_may_end_or_train_on():
    ended = record(RecordStatus.FAILED, f"worker-0 exited with code 0 {NO_STEP}", ranks=())
    assert row(ended, unmeasured=True)[0] == "ok"
    assert row(ended)[0] == "failed"
    late = record(RecordStatus.TIMEOUT, "the time limit", ranks=())
    assert row(late, unmeasured=True)[0] == "ok"
    assert row(late) == ("failed", "no step in 60 s", "look into its logs, or give it longer with --timeout")


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import tfdist.measure\ntfdist.measure.steps([], 1)\n")
    return ["python", "train.py"]


@dataclass
class Together(FakeArms):
    """Notes which arms ran when one was started."""

    running: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, start, post):
        arm = super().__call__(start, post)
        self.running.append(tuple(self.box.alive))
        return arm


@pytest.mark.parametrize(
    ("cores", "running"),
    [
        (1, [("one-device",), ("mirrored",), ("parameter-server",)]),
        (2, [("one-device",), ("mirrored",), ("parameter-server",)]),
        (3, [("one-device",), ("one-device", "mirrored"), ("parameter-server",)]),
        (8, [("one-device",), ("one-device", "mirrored"), ("one-device", "mirrored", "parameter-server")]),
    ],
)
def test_strategies_run_together_where_each_task_has_a_core(cores, running, program, tmp_path):
    plan, arms = plan_check(program, [ONE, TWO, SERVERS], local_machines(Machine(tuple(range(cores)), ()))), Together()
    rows = list(Checker(plan, tmp_path / "logs", 60.0, start_arm=arms).rows())
    assert plan.problem == ""
    assert arms.running == running
    assert sorted(row.check for row in rows) == ["mirrored", "one-device", "parameter-server"]
    assert arms.box.alive == []
    used = {start.arm: next(iter(start.machines.values())).cores for start in arms.starts}
    assert len(used["mirrored"]) == min(2, cores)


def test_what_cannot_run_here_is_named(program):
    plan = plan_check(program, [ONE, StrategyName.TPU], local_machines(Machine((0, 1), ())))
    (refused,) = plan.refused()
    assert (refused.check, refused.verdict) == ("tpu", Verdict.WARNING)
    assert "needs a TPU" in refused.text
    with pytest.raises(TfdistError, match=r"no-such\.py"):
        plan_check(["python", "no-such.py"], [ONE], local_machines(Machine((0,), ())))


class Unmeasured:
    """A program that says that it trains, and nothing more until it is interrupted."""

    def __init__(self, start, post):
        self.start, self.post = start, post
        for event in ({"event": "strategy", "trains": True}, {"event": "other"}):
            post(Progressed(start.arm, Event("worker-0", 0.0, event)))

    def interrupt(self, number, by=""):
        self.post(Ended(self.start.arm, replace(record(ranks=()), arm=self.start.arm, spec=self.start.spec.to_json())))


def test_a_program_without_measure_is_stopped_some_seconds_after_its_first_step(program, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("print(1)\n")
    plan = plan_check(program, [TWO], local_machines(Machine((0, 1), ())))
    assert "no step would be measured" in plan.problem
    monkeypatch.setattr("tfdist.bench.check.TRAINED_S", -1.0)
    (found,) = Checker(plan, tmp_path / "logs", 60.0, start_arm=Unmeasured).rows()
    assert (found.verdict, found.text) == (Verdict.OK, "it trains under MirroredStrategy")
