"""The runner with simulated arms: what is started, released, saved, repeated and stopped."""

import errno
import json
import os
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fake_arms import Box, FakeArm, FakeArms
from tfdist.bench.folder import BenchFile, BenchPaths
from tfdist.bench.group import NO_TRACES, Traces
from tfdist.bench.plan import PlannedRun, incarnations, interleave, start_order
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.report.summary import summarize
from tfdist.bench.runner import RunnerHooks, in_order, run_bench
from tfdist.bench.suites.arms import Arms
from tfdist.bench.suites.suite import parse_suite
from tfdist.bench.until import completed
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machine
from tfdist.models.record import RecordStatus
from tfdist.models.run import NO_STEP
from tfdist.models.strategy_check import StrategyCheck

MACHINE = Machine((0, 1), ())


@dataclass
class Bench:
    root: Path
    bench: BenchFile
    arms: Arms
    plan: tuple[PlannedRun, ...]
    fakes: FakeArms
    notes: list[str] = field(default_factory=list)
    numbers: list[tuple[int, int]] = field(default_factory=list)
    """Number and total of each turn, as progress shows them."""

    def run(self, until: float | None = None, traces: Traces = NO_TRACES) -> int | None:
        bench = self

        class Notes(Progress):
            def note(self, text: str) -> None:
                bench.notes.append(text)

            def turn(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
                bench.numbers.append((number, total))

        groups = list(incarnations(self.plan, self.bench.ends))
        hooks = RunnerHooks(Notes(), self.fakes, traces=traces)
        return run_bench(self.bench, self.arms, self.root, hooks, in_order(self.bench, groups), until)

    def turns(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "turns.jsonl").read_text().splitlines()]

    def statuses(self) -> dict[tuple[str, int], str]:
        return {(record.arm, record.round): str(record.status) for record in read_folder(self.root, "").records}


def with_requests(arms: Arms, **changed: Any) -> Arms:
    """The arms, all of them planned with these changes of their requests."""
    plans = {name: plan(replace(one.request, **changed), one.machines) for name, one in arms.plans.items()}
    return replace(arms, plans=plans)


@pytest.fixture
def make(tmp_path: Path):
    def build(*names: str, rounds: int = 2, box: Box | None = None, **keys: Any) -> Bench:
        strategies = {name: "one-device" if name == "one" else "independent" for name in names}
        table = [{"name": name, "strategy": strategy} for name, strategy in strategies.items()]
        suite = parse_suite({"arms": table, "rounds": rounds, "incarnations": 1, **keys}, "s")
        choices = {"workers": 1, "preset": "smoke"}
        requests = {name: Request({"strategy": strategy, **choices}) for name, strategy in strategies.items()}
        arms = Arms({name: plan(request, {LOCAL: MACHINE}) for name, request in requests.items()}, {}, ())
        turns = interleave(names, rounds, 0)
        bench = BenchFile(suite, "tfdist bench", "", turns)
        return Bench(tmp_path / "bench", bench, arms, turns, FakeArms(box or Box()))

    return build


def test_arms_start_once_and_take_every_turn_in_the_planned_order(make):
    bench = make("one", "a", "b", rounds=3)
    assert bench.run() is None
    order = start_order(["one", "a", "b"], 1, 0)
    assert bench.fakes.happened("start") == order
    assert bench.fakes.happened("turn")[:3] == order, "each is warmed up first"
    assert bench.fakes.happened("turn")[3:] == [run.arm for run in bench.plan]
    assert [(turn["round"], turn["arm"]) for turn in bench.turns()] == [(run.round, run.arm) for run in bench.plan]
    assert [turn["order"] for turn in bench.turns()] == list(range(1, 10))
    assert set(bench.statuses().values()) == {"ok"}
    assert bench.fakes.box.alive == []


@pytest.mark.parametrize("seed", range(5))
def test_the_recorded_order_is_that_of_the_starts(make, seed):
    bench = make("a", "b", "one", "c", rounds=1, seed=seed)
    bench.run()
    assert bench.fakes.happened("start") == start_order(["a", "b", "one", "c"], 1, seed)


def test_incarnations_start_the_processes_again_in_another_order_which_the_records_hold(make):
    bench = make("one", "a", "b", rounds=4, incarnations=4, seed=3)
    bench.run()
    orders = [start_order(["one", "a", "b"], number, 3) for number in (1, 2, 3, 4)]
    assert bench.fakes.happened("start") == [arm for order in orders for arm in order]
    assert len(set(map(tuple, orders))) > 1
    lines = map(json.loads, BenchPaths(bench.root).records.read_text().splitlines())
    arm_of = {each["order"]: each["arm"] for each in lines}
    assert [arm_of[number] for number in sorted(arm_of)] == bench.fakes.happened("start")
    assert [turn["incarnation"] for turn in bench.turns()] == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


def test_isolated_turns_have_processes_of_their_own(make):
    bench = make("one", "a", rounds=2, incarnations=2, isolated=True)
    bench.run()
    assert bench.fakes.happened("start") == [run.arm for run in bench.plan]
    assert {(turn["incarnation"], turn["round"], turn["group"]) for turn in bench.turns()} == {(1, 1, 1), (2, 2, 1)}


def test_later_starts_of_an_arm_find_its_programs_of_xla_and_no_other_arm_does(make):
    bench = make("one", "a", rounds=2, incarnations=2)
    choices = {"strategy": "one-device", "preset": "smoke", "model": "tiny", "xla": True}
    bench.arms = with_requests(bench.arms, choices=choices, environ={})
    (bench.root / "xla-cache").mkdir(parents=True)
    bench.run()
    found: dict[str, set[str]] = {}
    for start in bench.fakes.starts:
        job = start.planned.job
        found.setdefault(start.arm, set()).add(job.environment(job.plans[0])["TF_XLA_FLAGS"])
    folders = {"one": bench.root / "xla-cache" / "0", "a": bench.root / "xla-cache" / "1"}
    assert found == {arm: {f'--tf_xla_persistent_cache_directory="{path}"'} for arm, path in folders.items()}
    assert not (bench.root / "xla-cache").exists()


@pytest.mark.parametrize("seed", range(5))  # and so another order of starts
def test_arms_that_do_not_fit_into_memory_follow_in_a_group_with_the_baseline(make, seed):
    bench = make("one", "a", "b", "c", rounds=1, seed=seed, box=Box(gigabytes=3.4))
    bench.run()
    groups = [{turn["arm"] for turn in bench.turns() if turn["group"] == number} for number in (1, 2, 3)]
    assert sorted(map(sorted, groups)) == [["a", "one"], ["b", "one"], ["c", "one"]]
    assert bench.numbers[-1] == (6, 6)
    (first,) = groups[0] - {"one"}
    assert any(note.startswith("not enough memory for all arms at once; later: ") for note in bench.notes)
    assert first not in bench.notes[0].partition("later: ")[2].split(", ")
    assert {turn["incarnation"] for turn in bench.turns() if turn["group"] == 2} == {2}


def test_an_arm_that_dies_is_a_row_and_the_others_continue(make):
    bench = make("one", "a", rounds=4, incarnations=2)
    bench.fakes.behaviour = {"a": {"ends": 2}}  # the warm-up and one turn
    bench.run()
    statuses = bench.statuses()
    assert [statuses["one", number] for number in (1, 2, 3, 4)] == ["ok"] * 4
    assert {key: status for key, status in statuses.items() if key[0] == "a"} == {("a", 1): "ok", ("a", 2): "failed"}
    (note,) = bench.notes
    assert note.startswith("a: failed: worker-0 exited with code 1: boom (logs: ")
    assert bench.fakes.happened("start") == ["one", "a", "one"], "it is not started again"
    assert {total for _, total in bench.numbers[:3]} == {8}
    assert bench.numbers[-1] == (5, 5)


def test_an_arm_whose_turns_are_complete_is_measured_whatever_its_program_does_then(make):
    bench = make("one", "a", rounds=2)
    original = FakeArm.finish
    with pytest.MonkeyPatch.context() as patch:
        why = "worker-0: ZeroDivisionError"
        patch.setattr(FakeArm, "finish", lambda arm, status, reason="": original(arm, RecordStatus.FAILED, why))
        bench.run()
    assert set(bench.statuses().values()) == {"ok"}
    assert sorted(bench.notes) == [f"{arm} is measured; then its program failed: {why}" for arm in ("a", "one")]


def test_a_program_that_ends_too_early_has_failed(make):
    bench = make("one", "a", rounds=2)
    bench.fakes.behaviour = {"a": {"ends": 1}}
    original = FakeArm.finish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeArm, "finish", lambda arm, status, reason="": original(arm, RecordStatus.OK))
        bench.run()
    assert "it ended before its last turn" in bench.notes[0]
    assert bench.statuses()["a", 1] == "failed"


def test_an_arm_that_ends_in_its_trace_keeps_its_turns_and_has_not_failed(make, tmp_path):
    bench = make("one", "a", rounds=2)
    bench.fakes.behaviour = {"a": {"ends": 3}}  # the warm-up and two turns
    bench.run(traces=Traces({"a": tmp_path / "traces" / "a"}))
    assert bench.notes[0] == "tracing a"
    assert bench.notes[1].startswith("a: no trace: worker-0 exited with code 1: boom (logs: ")
    assert len(bench.notes) == 2
    assert bench.statuses()["a", 1] == "ok"
    assert [turn["arm"] for turn in bench.turns()].count("a") == 2


def blocks(bench: Bench) -> dict[tuple[int, int], set[str]]:
    """The arms of each block, by group and round, as statistics see them."""
    found: dict[tuple[int, int], set[str]] = {}
    for record in read_folder(bench.root, "").records:
        found.setdefault((record.group, record.round), set()).add(record.arm)
    return found


def test_a_disturbed_turn_is_repeated_once_beside_the_baseline_in_a_block_of_its_own(make):
    bench = make("one", "a", "b", rounds=2)
    bench.fakes.behaviour = {"a": {"busy": (2, 4, 5)}}  # releases: warm-up, two turns, repeats
    bench.run()
    assert bench.notes == ["repeating 1 disturbed turn, with the arms that they are compared with"]
    assert blocks(bench) == {(1, 1): {"one", "b"}, (1, 2): {"one", "a", "b"}, (-1, 1): {"one", "a"}}
    assert len(bench.turns()) == 8
    assert [(each.arm, each.round) for each in read_folder(bench.root, "").replaced] == [("a", 1)]
    assert completed(read_folder(bench.root, "").records) == set(bench.plan)


def test_a_round_whose_baseline_was_disturbed_is_repeated_whole(make):
    bench = make("one", "a", "b", rounds=3)
    bench.fakes.behaviour = {"one": {"busy": (3,)}, "a": {"busy": (4,)}}
    bench.run()
    assert bench.notes == ["repeating 1 disturbed turn, with the arms that they are compared with"], (
        "at most as many turns as arms"
    )
    every = {"one", "a", "b"}
    assert blocks(bench) == {(1, 1): every, (1, 2): {"a", "b"}, (1, 3): every, (-1, 2): every}


VERSIONS = ("one", "one (base)", "a", "a (base)")


def test_a_disturbed_turn_of_a_version_is_repeated_beside_the_other_one(make):
    bench = make(*VERSIONS, rounds=2, against=".")
    bench.fakes.behaviour = {"a (base)": {"busy": (3,)}}
    bench.run()
    pairs = {"one", "one (base)"}, {"a", "a (base)"}
    assert blocks(bench) == {(1, 1): pairs[0] | pairs[1], (1, 2): pairs[0] | {"a"}, (-1, 2): pairs[1]}


@pytest.mark.parametrize("gigabytes", [3.4, 4.4])
@pytest.mark.parametrize("seed", range(5))
def test_versions_that_do_not_fit_into_memory_are_measured_beside_each_other(make, gigabytes, seed):
    bench = make(*VERSIONS, rounds=2, box=Box(gigabytes=gigabytes), against=".", seed=seed)
    bench.run()
    found = blocks(bench)
    assert len({group for group, _ in found}) > 1, found
    for arm, base in (VERSIONS[:2], VERSIONS[2:]):
        assert {number for (_, number), arms in found.items() if arms >= {arm, base}} == {1, 2}


@pytest.mark.parametrize(
    ("keys", "busy"), [({"isolated": True, "incarnations": 2}, {"a": (2,)}), ({}, {"a": (2, 3), "one": (2,)})]
)
def test_isolated_turns_are_not_repeated_nor_those_of_a_busy_machine(make, keys, busy):
    bench = make("one", "a", rounds=2, **keys)
    bench.fakes.behaviour = {arm: {"busy": releases} for arm, releases in busy.items()}
    bench.run()
    assert len(bench.turns()) == 4
    assert not bench.notes


def test_a_tiny_program_that_does_not_end_is_stopped_and_keeps_its_turns(make, monkeypatch):
    monkeypatch.setattr("tfdist.bench.group.END_S", 0.2)
    bench = make("one", "a", rounds=1)
    bench.fakes.behaviour = {"a": {"stubborn": True}}
    assert bench.run() is None
    assert bench.fakes.happened(f"signal {int(signal.SIGTERM)}") == ["a"]
    assert set(bench.statuses().values()) == {"ok"}


def test_no_round_starts_after_the_budget(make):
    bench = make("one", "a", rounds=3)
    assert bench.run(until=time.monotonic() - 1) is None
    assert bench.fakes.happened("start") == []


def test_a_signal_keeps_the_turns_and_ends_all_processes(make):
    bench = make("one", "a", rounds=4, incarnations=2)
    bench.fakes.behaviour = {"a": {"ctrl_c": 3}}  # releases: warm-up, two turns
    assert bench.run() == signal.SIGINT
    assert "SIGINT: stopping 2 arms; a second one kills them. Turns so far are kept" in bench.notes
    assert bench.fakes.box.alive == []
    assert bench.statuses()["a", 1] == "ok"
    assert bench.fakes.happened("start") == ["one", "a"]


def test_a_resumed_bench_continues_the_numbers(make):
    bench = make("one", rounds=2)
    bench.run()
    bench.plan = tuple(PlannedRun(number, "one") for number in (3, 4))
    bench.bench = replace(bench.bench, last_rounds=(2, 4))
    bench.run()
    assert [turn["order"] for turn in bench.turns()] == [1, 2, 3, 4]
    assert [turn["incarnation"] for turn in bench.turns()] == [1, 1, 2, 2]
    assert {
        each["incarnation"] for each in map(json.loads, BenchPaths(bench.root).records.read_text().splitlines())
    } == {1, 2}


def test_arms_that_do_not_fit_beside_the_baseline_run_without_it(make):
    bench = make("one", "a", "b", rounds=1, box=Box(gigabytes=2.4))
    assert bench.run() is None
    groups = {(turn["group"], turn["arm"]) for turn in bench.turns()}
    assert groups == {(1, "one"), (1, "a"), (2, "one"), (3, "b")}, "the first two start before memory is known"


def test_a_baseline_that_is_not_first_in_the_suite_starts_once_in_each_group(make):
    bench = make("a", "b", "one", rounds=1, box=Box(gigabytes=3.4))
    assert bench.run() is None
    starts = bench.fakes.happened("start")
    assert sorted(starts[:2]) == ["a", "one"]
    assert sorted(starts[2:]) == ["b", "one"]
    assert bench.fakes.box.alive == []


def test_the_baseline_that_the_suite_names_is_in_each_group(make):
    bench = make("one", "a", "b", rounds=1, baseline="b", box=Box(gigabytes=3.4))
    bench.arms = replace(bench.arms, chosen="b")
    bench.run()
    groups = [{turn["arm"] for turn in bench.turns() if turn["group"] == number} for number in (1, 2)]
    assert sorted(map(sorted, groups)) == [["a", "b"], ["b", "one"]]


def test_a_full_disk_stops_all_arms_and_says_how_to_continue(make, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bench = make("one", "a", rounds=2)
    monkeypatch.setattr("tfdist.bench.runner.append_line", full)
    with pytest.raises(TfdistError, match=rf"{bench.root} \(No space left on device\): .* --resume {bench.root}"):
        bench.run()
    assert bench.fakes.box.alive == []


def test_a_signal_while_a_program_is_stopped_at_its_end_ends_the_bench(make, monkeypatch):
    monkeypatch.setattr("tfdist.bench.group.END_S", 0.1)
    bench = make("one", "a", rounds=4, incarnations=2)
    bench.fakes.behaviour = {"a": {"stubborn": True}}
    original = FakeArm.interrupt

    def interrupt(arm: FakeArm, number: int, by: str = "") -> None:
        if number == signal.SIGTERM:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            original(arm, number, by)

    monkeypatch.setattr(FakeArm, "interrupt", interrupt)
    assert bench.run() == signal.SIGINT
    assert bench.fakes.happened("start") == ["one", "a"], "no second incarnation"
    assert bench.fakes.box.alive == []


def test_an_arm_that_a_user_stops_is_not_started_again(make):
    bench = make("one", "a", rounds=4, incarnations=2)
    bench.fakes.behaviour = {"a": {"ends": 1}}
    original = FakeArm.finish
    with pytest.MonkeyPatch.context() as patch:
        interrupted = RecordStatus.INTERRUPTED

        def finish(arm: FakeArm, status: RecordStatus, reason: str = "") -> None:
            if status == RecordStatus.FAILED:
                original(arm, interrupted, "stopped by 'tfdist stop'")
            else:
                original(arm, status, reason)

        patch.setattr(FakeArm, "finish", finish)
        bench.run()
    assert bench.notes[0].startswith("a: interrupted: stopped by 'tfdist stop'")
    assert bench.fakes.happened("start") == ["one", "a", "one"]
    assert bench.statuses()["a", 1] == "interrupted"


def test_an_arm_that_hangs_has_the_timeout_of_the_suite_as_its_reason(make):
    bench = make("one", "a", rounds=1, timeout=7)
    bench.fakes.behaviour = {"a": {"ends": 1}}
    original, reason = FakeArm.finish, "stopped after --timeout 7 s; hint: do this"
    with pytest.MonkeyPatch.context() as patch:
        timeout = {RecordStatus.FAILED: RecordStatus.TIMEOUT}
        patch.setattr(FakeArm, "finish", lambda arm, status, _="": original(arm, timeout.get(status, status), reason))
        bench.run()
    said = "a: timeout: a turn took longer than 7 s, the timeout of the suite; hint: do this"
    assert bench.notes[0].startswith(said)


@pytest.mark.parametrize("status", [RecordStatus.FAILED, RecordStatus.TIMEOUT])
def test_a_first_arm_without_a_step_ends_the_bench(make, monkeypatch, status):
    bench = make("one", "a", "b", rounds=1, timeout=7)
    bench.arms = with_requests(bench.arms, choices={"strategy": "one-device"}, command=("true",))
    bench.fakes.behaviour = {"one": {"ends": -1}}
    original = FakeArm.finish
    reason = f"worker-0 exited with code 0 {NO_STEP}"

    def finish(arm, ending, why=""):
        original(arm, status, reason) if arm.ends < 0 else original(arm, ending, why)

    monkeypatch.setattr(FakeArm, "finish", finish)
    sentence = "measured no step" if status is RecordStatus.FAILED else "its start took longer than 7 s"
    with pytest.raises(TfdistError, match=rf"^one: .*{sentence}.*; no arm has measured a step yet, so the bench stops"):
        bench.run()
    assert "b" not in bench.fakes.happened("turn")
    assert bench.statuses()["one", 1] == str(status)
    assert bench.fakes.box.alive == []


def test_two_first_arms_that_fail_end_the_bench_of_a_program(make):
    bench = make("one", "a", "b", rounds=1)
    bench.arms = with_requests(bench.arms, choices={"strategy": "one-device"}, command=("true",))
    bench.fakes.behaviour = {"one": {"ends": -1}, "a": {"ends": -1}}
    with pytest.raises(TfdistError, match=r"^a: port 5 .*; no arm has measured a step yet, so the bench stops"):
        bench.run()
    assert bench.notes[0].startswith("one: failed: port 5 ")


def test_a_turn_that_was_cut_off_is_measured_again_on_a_line_of_its_own(make):
    bench = make("one", rounds=2)
    bench.run()
    turns = bench.root / "turns.jsonl"
    turns.write_text(turns.read_text()[:-40])
    bench.plan = (PlannedRun(2, "one"),)
    bench.run()
    assert bench.statuses() == {("one", 1): "ok", ("one", 2): "ok"}
    (unreadable,) = read_folder(bench.root, "").unreadable
    assert (unreadable.file, unreadable.reason) == ("turns.jsonl, line 2", "truncated, or not JSON")


def test_an_arm_that_has_learned_enough_gets_no_more_turns_and_starts_again_with_the_next_seed(make):
    bench = make("one", "a", rounds=8, incarnations=2, defaults={"evaluate_turns": True}, until_accuracy=0.9)
    choices = {"strategy": "one-device", "preset": "smoke", "dataset": "digits", "evaluate_turns": True, "seed": 5}
    bench.arms = with_requests(bench.arms, choices=choices)
    # the first release warms up
    bench.fakes.behaviour = {"one": {"learns": 3, "busy": (2, 3)}, "a": {"learns": 99}}
    assert bench.run() is None
    assert [turn["round"] for turn in bench.turns() if turn["arm"] == "one"] == [1, 2, 5, 6], "none is repeated"
    assert [turn["round"] for turn in bench.turns() if turn["arm"] == "a"] == list(range(1, 9))
    seeds = [(start.arm, start.spec.seed) for start in bench.fakes.starts]
    assert seeds == [("one", 5), ("a", 5), ("one", 6), ("a", 6)]
    assert [total for _, total in bench.numbers][-1] == 12
    save_json(BenchPaths(bench.root).bench, bench.bench.to_json())
    rows = {row.arm: row for row in summarize([read_folder(bench.root, "")])}
    assert (rows["one"].status, rows["one"].rounds, rows["one"].rounds_planned) == ("ok", 4, 4)


def test_an_arm_that_did_not_train_under_its_strategy_is_announced_when_it_is_ready(make):
    bench = make("one", "a")
    note = "the program did not train under independent: it trained 2 replicas in sync, not 1"
    bench.fakes.records = {"a": {"strategy_check": StrategyCheck.REFUTED, "strategy_note": note}}
    bench.run()
    assert bench.notes == [f"a is not ranked: {note}"]
