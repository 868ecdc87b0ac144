"""What may change when a bench continues, and what may not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import record, save_record
from tfdist.bench.folder import BenchPaths, read_bench
from tfdist.bench.options import BenchOptions
from tfdist.bench.plan import interleave
from tfdist.bench.session import Session, prepare
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machine, local_machines

MACHINES = local_machines(Machine((0, 1), ()))
COMMITTED = Path(__file__).parents[2] / "bench_results"


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    path = tmp_path / "mine.toml"
    path.write_text(
        'preset = "smoke"\nrounds = 4\nincarnations = 2\nmatrix.strategy = ["one-device", { strategy = "mirrored", devices = 2 }]\n'
    )
    return BenchOptions(suite=str(path), out=tmp_path / "out", command="tfdist bench")


def interrupted(options: BenchOptions, rounds: int) -> Session:
    """A bench of which this many rounds are measured."""
    session = prepare(options, MACHINES)
    save_json(BenchPaths(session.root).bench, session.bench.to_json())
    for number, run in enumerate(run for run in session.bench.plan if run.round <= rounds):
        one = replace(record(run.arm, round=run.round), order=number)
        save_record(session.root, one)
    return session


def resume(session: Session, **options: Any) -> Session:
    return prepare(BenchOptions(resume=session.root, **options), MACHINES)


def rounds_of(session: Session) -> list[list[int]]:
    """The rounds of each incarnation."""
    return [sorted({run.round for run in runs}) for runs in session.incarnations]


def test_alone_it_finishes_the_planned_rounds(options: BenchOptions) -> None:
    session = interrupted(options, 1)
    assert rounds_of(session) == [[1, 2], [3, 4]]
    assert rounds_of(resume(session)) == [[2], [3, 4]]


def test_with_rounds_it_adds_some_with_processes_of_their_own(options: BenchOptions) -> None:
    session = interrupted(options, 4)
    assert rounds_of(resume(session)) == []
    more = resume(session, rounds=8)
    assert rounds_of(more) == [[5, 6], [7, 8]]
    assert (more.bench.suite.rounds, more.bench.suite.incarnations) == (8, 4)
    assert more.bench.plan[: len(session.bench.plan)] == session.bench.plan
    assert more.bench.plan == interleave([arm.name for arm in session.bench.suite.arms], 8, 0)


def test_added_rounds_can_be_resumed_and_added_to_again(options: BenchOptions) -> None:
    session = interrupted(options, 4)
    more = resume(session, rounds=6)
    save_json(BenchPaths(session.root).bench, more.bench.to_json())
    assert rounds_of(resume(session)) == [[5, 6]]
    assert rounds_of(resume(session, rounds=7)) == [[5, 6], [7]]


def test_a_round_keeps_its_incarnation(options: BenchOptions) -> None:
    """Of 5 rounds in 2 starts the first has 3; more rounds would be spread as 4 and 4."""
    session = interrupted(replace(options, rounds=5, incarnations=2), 0)
    assert rounds_of(session) == [[1, 2, 3], [4, 5]]
    more = resume(session, rounds=8)
    assert rounds_of(more) == [[1, 2, 3], [4, 5], [6, 7, 8]]
    save_json(BenchPaths(session.root).bench, more.bench.to_json())
    assert rounds_of(resume(session)) == [[1, 2, 3], [4, 5], [6, 7, 8]]
    many = interrupted(replace(options, out=session.root.parent / "12", rounds=12, incarnations=5), 0)
    assert resume(many).bench.suite.incarnations == 5


def test_isolated_turns_stay_isolated(options: BenchOptions) -> None:
    path = Path(str(options.suite))
    path.write_text(path.read_text().replace("incarnations = 2\n", ""))
    session = interrupted(replace(options, isolated=True), 4)
    assert rounds_of(resume(session, rounds=6)) == [[5], [6]]


def test_rounds_that_are_measured_stay(options: BenchOptions) -> None:
    session = interrupted(options, 3)
    assert rounds_of(resume(session, rounds=3)) == []
    with pytest.raises(TfdistError, match=r"--rounds 2: 3 rounds of .* are measured; give at least that many"):
        resume(session, rounds=2)
    with pytest.raises(TfdistError, match="--rounds 0"):
        resume(interrupted(replace(options, out=session.root.parent / "b"), 0), rounds=0)


def test_the_same_suite_may_be_given_again_with_more_rounds(options: BenchOptions) -> None:
    session = interrupted(replace(options, turn_s=1.5), 1)
    assert rounds_of(resume(session, suite=options.suite, turn_s=1.5, rounds=6)) == [[2], [3, 4], [5, 6]]


def test_a_secret_of_the_command_must_be_given_again(tmp_path: Path) -> None:
    program = ("true", "--token", "abc")
    options = BenchOptions(suite="smoke", out=tmp_path / "out", program=program, patterns=("one-device",))
    session = prepare(options, MACHINES)
    save_json(BenchPaths(session.root).bench, session.bench.to_json())
    BenchPaths(session.root).records.touch()
    with pytest.raises(TfdistError, match="has secrets, which are not saved"):
        resume(session)
    assert resume(session, program=program).arms.commands == {"one-device": program}
    with pytest.raises(TfdistError, match="was started with another arms"):
        resume(session, program=("true",))


def test_every_committed_bench_is_readable() -> None:
    folders = [path.parent for path in COMMITTED.glob("**/bench.json")]
    assert folders
    for folder in folders:
        assert read_bench(folder) is not None


def test_failed_turns_are_left(options: BenchOptions) -> None:
    session = interrupted(options, 4)
    run = session.bench.plan[0]
    failed = replace(record(run.arm, round=run.round, status="failed"), order=99)
    save_record(session.root, failed)
    assert resume(session).to_run == (run,)


def test_turns_of_refused_arms_are_not_planned(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    one = '{ name = "a", strategy = "one-device" }'
    path.write_text(f'rounds = 4\narms = [{one}, {{ name = "b", strategy = "one-device", gpus = true }}]\n')
    session = prepare(BenchOptions(suite=str(path), out=tmp_path / "out"), MACHINES)
    assert list(session.arms.refused) == ["b"]
    assert [run.arm for run in session.planned] == ["a"] * 4


def test_an_explanation_keeps_the_arms_that_it_has_added(options: BenchOptions) -> None:
    session = interrupted(replace(options, explain=True), 1)
    arms = [arm.name for arm in session.bench.suite.arms]
    assert arms == ["one-device", "mirrored/devices=2", "no-strategy", "independent/2"]
    for again in (resume(session), resume(session, explain=True)):
        assert again.bench.suite == session.bench.suite
        assert rounds_of(again) == [[2], [3, 4]]
    with pytest.raises(TfdistError, match="it was started with another explain"):
        resume(interrupted(replace(options, out=session.root.parent / "other"), 1), explain=True)
