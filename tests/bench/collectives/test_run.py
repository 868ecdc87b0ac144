"""The turns of simulated arms: what is saved, and when."""

from dataclasses import dataclass

import pytest

from tests.bench.fake_arms import Box, FakeArm, FakeArms
from tfdist.bench.arm_process import ArmStart, Post
from tfdist.bench.collectives.figures import disturbed_turns, figures_of, noise_sentences
from tfdist.bench.collectives.plan import CollectiveOptions, plan_collectives
from tfdist.bench.collectives.results import SweepFolder, read_collectives
from tfdist.bench.collectives.run import run_collectives
from tfdist.bench.progress import Progress
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.turns import HostReading, Parked
from tfdist.launch.errors import TfdistError
from tfdist.launch.events import Turn
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.machine import Machine
from tfdist.models.collectives.spec import CollectiveSpec, cases_of
from tfdist.models.record import RankRecord, Record, RecordStatus
from tfdist.strategies.options import Communication, CrossDevice

MACHINES = {LOCAL: Machine(cores=(0, 1), gpus=())}


@dataclass
class FakeRanks(FakeArm):
    """Two tasks; the second is slower by a tenth, and has `wrong` wrong elements in each result."""

    wrong: int = 0
    differ: bool = False
    slow: tuple[int, int] = (0, 0)
    """Incarnation and release in which every size takes twice as long."""

    def release(self, turn: Turn) -> None:
        if not turn.windows or self.releases + 1 in (self.ctrl_c,) or self.releases + 1 > self.ends:
            return super().release(turn)
        self.releases += 1
        self.box.log.append(("turn", self.start.arm))
        assert isinstance(self.start.spec, CollectiveSpec)
        rows = [
            {"bytes": case.bytes, "tensors": 1, "pack_bytes": 0, "iterations": 10, "seconds": 0.02, "wrong": 0}
            for case in cases_of(self.start.spec, ())
        ]
        seconds = 0.022 * (2 if (self.start.incarnation, self.releases) == self.slow else 1)
        slow = [{**row, "seconds": seconds, "wrong": self.wrong} for row in rows][: -1 if self.differ else None]
        observed = {"worker-0": {"collectives": rows}, "worker-1": {"collectives": slow}}
        readings = (HostReading(self.box.reading(), self.box.reading()),)
        self.post(Parked(self.start.arm, 0.1, {}, readings, self.record, observed))


class FakeProcesses(FakeArms):
    def __call__(self, start: ArmStart, post: Post) -> FakeArm:
        rank = RankRecord("worker-0", "box", 1, (), (), {}, 0, 0, software={"tensorflow": "2.21.0"})
        hardware = {"cores": [0, 1], "memory_bytes": 8 * 10**9, "cpu": "A CPU"}
        record = Record(start.arm, 0, start.spec.to_json(), RecordStatus.OK, "", 0, (rank,), hardware=hardware)
        arm = FakeRanks(start, post, self.box, record, **self.behaviour.get(start.arm, {}))
        self.starts.append(start)
        self.box.alive.append(start.arm)
        start.run_dir.mkdir(parents=True)
        if arm.ends < 0:
            arm.finish(RecordStatus.FAILED, "worker-0 exited with code 1: boom")
        else:
            arm.park({})
        return arm


@pytest.fixture
def measure(tmp_path):
    def measured(behaviour=None, gigabytes=100.0, progress=None, **options):
        arms = FakeProcesses(Box(gigabytes), behaviour or {})
        values = {"communication": (Communication.AUTO, Communication.RING), "sizes": (1024, 4096)}
        values |= {"out": tmp_path / "out", "rounds": 3, "incarnations": 1}
        plan = plan_collectives(CollectiveOptions(**{**values, **options}), MACHINES)
        code = run_collectives(plan, RunnerHooks(progress or Progress(), arms))
        return code, read_collectives(plan.root), arms

    return measured


def test_every_turn_of_every_arm_is_saved_with_the_time_of_the_slowest_rank(measure):
    code, sweep, _ = measure()
    assert code == 0
    assert len(sweep.lines) == 2 * 3 * 2
    assert {(line.arm, line.round) for line in sweep.lines} == {
        (arm, number) for arm in ("multiworker/ring", "multiworker/auto") for number in (1, 2, 3)
    }
    first = next(line for line in sweep.lines if line.communication)
    assert (first.seconds, first.iterations, first.bytes, first.ranks, first.wrong) == (
        pytest.approx(0.0022),
        10,
        1024,
        2,
        0,
    )
    assert sweep.header.environment["tensorflow"] == ("2.21.0",)
    assert sweep.header.rounds == 3
    assert sweep.header.same_arms == (("multiworker/ring", "multiworker/auto"),)


def test_every_start_has_its_rounds_and_a_recorded_order_of_the_arms(measure):
    code, sweep, arms = measure(rounds=12, incarnations=4, cross_device=tuple(CrossDevice)[:3])
    assert code == 0
    assert {(line.incarnation, line.round) for line in sweep.lines} == {((n + 2) // 3, n) for n in range(1, 13)}
    started = [tuple(start.arm for start in arms.starts if start.incarnation == number) for number in (1, 2, 3, 4)]
    assert sweep.header.starts == tuple(started)
    assert len(set(started)) > 1
    assert {tuple(sorted(order)) for order in started} == {tuple(sorted(started[0]))}


def test_the_starts_share_no_template_no_folder_and_no_order_of_sizes(measure):
    _, _, arms = measure(rounds=6, incarnations=2, seed=5)
    assert len({id(start.templates) for start in arms.starts}) == 2
    assert len({start.run_dir for start in arms.starts}) == 4
    assert {(start.incarnation, start.spec.seed) for start in arms.starts} == {(1, 5), (2, 6)}


def test_a_turn_that_was_disturbed_at_every_size_is_named_once_and_moves_no_figure(measure):
    _, sweep, _ = measure({"multiworker/ring": {"slow": (2, 1)}}, rounds=12, incarnations=4)
    (text,) = disturbed_turns(sweep.lines)
    assert text.startswith("multiworker/ring, round 4: 2.00 times as long")
    assert {round(figure.line.seconds, 9) for figure in figures_of(sweep)} == {0.0022}
    (noise,) = noise_sentences(sweep)
    assert "multiworker/ring takes 1.00 times" in noise


def test_an_arm_that_failed_is_not_started_again(measure):
    code, sweep, arms = measure({"multiworker/ring": {"ends": 1}}, rounds=6, incarnations=2)
    assert code == 1
    assert [start.arm for start in arms.starts].count("multiworker/ring") == 1
    assert {line.round for line in sweep.lines if line.arm == "multiworker/auto"} == {1, 2, 3, 4, 5, 6}


def test_wrong_elements_of_any_rank_are_counted(measure):
    _, sweep, _ = measure({"multiworker/ring": {"wrong": 3}})
    assert {line.wrong for line in sweep.lines if line.arm == "multiworker/ring"} == {3}
    assert {line.wrong for line in sweep.lines if line.arm == "multiworker/auto"} == {0}


def test_an_arm_that_dies_keeps_its_lines_and_its_reason_and_the_others_go_on(measure):
    code, sweep, _ = measure({"multiworker/ring": {"ends": 1}})
    assert code == 1
    assert {line.round for line in sweep.lines if line.arm == "multiworker/ring"} == {1}
    assert {line.round for line in sweep.lines if line.arm == "multiworker/auto"} == {1, 2, 3}
    assert "boom" in sweep.header.not_measured["multiworker/ring"]


def test_an_arm_that_does_not_start_has_no_lines(measure):
    code, sweep, _ = measure({"multiworker/ring": {"ends": -1}})
    assert code == 1
    assert {line.arm for line in sweep.lines} == {"multiworker/auto"}


def test_after_ctrl_c_the_turns_so_far_are_kept_and_all_processes_have_ended(measure):
    code, sweep, arms = measure({"multiworker/ring": {"ctrl_c": 2}})
    assert code == 130
    assert {line.round for line in sweep.lines if line.arm == "multiworker/ring"} == {1}
    assert arms.box.alive == []


def test_arms_that_do_not_fit_into_memory_together_are_measured_one_after_the_other(measure):
    code, sweep, arms = measure(gigabytes=2.0)
    assert code == 0
    assert len(sweep.lines) == 12
    first, second = arms.happened("turn")[::3]
    assert {first, second} == {"multiworker/ring", "multiworker/auto"}
    assert arms.happened("turn") == [first] * 3 + [second] * 3
    assert sweep.header.starts == ((first,), (second,))
    assert {(line.arm, line.incarnation) for line in sweep.lines} == {(first, 1), (second, 2)}


def test_tasks_that_report_different_sizes_are_an_error(measure, tmp_path):
    with pytest.raises(TfdistError, match="its tasks measured different sizes in a turn"):
        measure({"multiworker/ring": {"differ": True}})


def test_the_header_is_saved_before_the_first_turn(measure, tmp_path):
    class Looking(Progress):
        seen = None

        def turn(self, run, number, total, left_s):
            self.seen = self.seen or SweepFolder(tmp_path / "out").header.read_text()

    progress = Looking()
    measure(progress=progress)
    assert "A CPU" in progress.seen
