"""Two versions of a program in one bench: where the earlier one is, its arms, and how they compare."""

import io
import os
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fake_arms import FakeArms
from tfdist.bench.against import MOST_STARTS, PRECISION, base_version, check_base, pinned
from tfdist.bench.compare.folders import compare_folders
from tfdist.bench.compare.gate import NOISY, gate_needs
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.report.build import make_report
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import prepare
from tfdist.bench.suites.arms import Version
from tfdist.bench.suites.suite import parse_suite
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.packing import pack
from tfdist.launch.program_copy import ProgramCopy

CPU = Machine((0, 1), ())
MACHINES = local_machines(CPU)
PROGRAM = ("python", "train.py")


def git(*words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *names, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of sub/train.py, and changes that are not committed; the working directory is sub."""
    sub = tmp_path / "it's a repo" / "sub"
    sub.mkdir(parents=True)
    monkeypatch.chdir(sub)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    git("init", "--quiet", "..")
    for number in (1, 2):
        (sub / "train.py").write_text(f"import tfdist.measure  # {number}")
        git("add", "train.py")
        git("commit", "--quiet", "-m", str(number))
    (sub / "train.py").write_text("import tfdist.measure  # now")
    (sub / "new.py").write_text("import tfdist.measure")
    return sub


@pytest.fixture
def options(repository: Path, tmp_path: Path) -> BenchOptions:
    return BenchOptions("smoke", patterns=("one-device",), out=tmp_path / "out", program=PROGRAM, against="HEAD~1")


def test_a_revision_is_pinned_to_its_commit_and_a_folder_stays(repository: Path) -> None:
    assert pinned("HEAD~1") == git("rev-parse", "HEAD~1")
    for folder in (".", "..", "./", "../sub", str(repository)):
        assert pinned(folder) == folder
    (repository / "base").mkdir()
    for against, sentence in {
        "HEAD~9": r"not a git revision here; give one, as HEAD~1, or a folder, as \./base$",
        "base": r"not a git revision here; for the folder write \./base$",
        "./nowhere": "no such folder; give another, or a git revision, as HEAD~1$",
        "-1": "not a git revision here; ",
        "--branches=*": "not a git revision here; ",
        "^HEAD": "not a git revision here; ",
    }.items():
        with pytest.raises(TfdistError, match=f"^--against {re.escape(against)}: {sentence}"):
            pinned(against)


def test_no_folder_of_the_repository_takes_the_place_of_a_revision(repository: Path) -> None:
    commit = git("rev-parse", "HEAD^1")
    for name in ("HEAD^1", commit):
        (repository / name).mkdir()
        (repository / name / "train.py").write_text("import tfdist.measure  # slow")
        assert pinned(name) == commit
    with base_version(commit) as version:
        assert version is not None
        assert (version.folder / "train.py").read_text().endswith("# 1")


def test_a_name_of_several_references_is_refused(repository: Path) -> None:
    now, before = git("rev-parse", "HEAD"), git("rev-parse", "HEAD~1")
    git("branch", "release", now)
    git("tag", "release", before)
    with pytest.raises(TfdistError, match=r"^--against release: the name of several git references; give its hash"):
        pinned("release")
    assert (pinned("refs/heads/release"), pinned("refs/tags/release")) == (now, before)
    git("update-ref", f"refs/heads/{before[:7]}", now)
    with pytest.raises(TfdistError, match=f"^--against {before[:7]}: the name of several git references"):
        pinned(before[:7])
    git("update-ref", "refs/heads/HEAD", before)
    with pytest.raises(TfdistError, match=r"^--against HEAD: the name of several git references"):
        pinned("HEAD")


def test_a_folder_of_the_repository_is_no_repository_itself(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("clone", "--quiet", "--bare", "..", "within")
    monkeypatch.chdir("within")
    with pytest.raises(TfdistError, match=r"^--against HEAD: not a git revision here \(cannot use bare repository "):
        pinned("HEAD")


def test_a_commit_is_not_replaced_and_no_hook_runs(repository: Path) -> None:
    now, before = git("rev-parse", "HEAD"), git("rev-parse", "HEAD~1")
    git("replace", before, now)
    hook = repository / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text('#!/bin/sh\necho "# hook" >> sub/train.py')
    hook.chmod(0o755)
    git("config", "core.hooksPath", str(hook.parent))
    with base_version(pinned("HEAD~1")) as version:
        assert version is not None
        assert (version.folder / "train.py").read_text().endswith("# 1")


def test_a_revision_is_in_a_worktree_which_is_removed_at_the_end(repository: Path) -> None:
    commit = pinned("HEAD~1")
    with base_version(commit) as version:
        assert version is not None
        assert (version.folder / "train.py").read_text().endswith("# 1")
        assert version.words == f"git switch --detach {commit[:12]} && "
        assert len(git("worktree", "list").splitlines()) == 2
    assert not version.folder.exists()
    assert len(git("worktree", "list").splitlines()) == 1
    with base_version("../sub") as version:
        assert version == Version(repository, "cd ../sub && ")


def test_a_worktree_is_removed_after_an_error_too(repository: Path) -> None:
    with pytest.raises(ZeroDivisionError), base_version(pinned("HEAD")):
        raise ZeroDivisionError
    assert len(git("worktree", "list").splitlines()) == 1


def test_every_arm_runs_twice_and_the_base_in_its_folder(options: BenchOptions) -> None:
    session = prepare(replace(options, rounds=2), MACHINES)
    assert [arm.name for arm in session.bench.suite.arms] == ["one-device", "one-device (base)"]
    assert session.baseline == "one-device"
    fakes = FakeArms()
    assert run_session(session, RunnerHooks(Progress(), fakes)) == 0
    folders = {start.arm: start.planned.request.cwd for start in fakes.starts}
    assert folders["one-device"] == ""
    base = Path(folders["one-device (base)"])
    assert base.name == "sub"
    assert not base.exists(), "the worktree is removed"
    again = prepare(BenchOptions(resume=session.root, rounds=3, against="HEAD~1", program=PROGRAM), MACHINES)
    assert again.bench.suite.arms == session.bench.suite.arms
    git("commit", "--quiet", "--all", "-m", "3")
    assert prepare(BenchOptions(resume=session.root), MACHINES).bench.suite.against == session.bench.suite.against


def content(copy: ProgramCopy | None, name: str) -> bytes:
    """Of a file in a copy."""
    assert copy is not None
    with tarfile.open(fileobj=io.BytesIO(copy.archive)) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def test_with_a_copy_both_versions_travel_to_other_hosts(options: BenchOptions) -> None:
    host = Host("h1", "10.0.0.1")
    options = replace(options, rounds=2, copy=pack("."))
    session = prepare(options, {host: CPU})
    assert any(note.startswith(f"copy of {Path.cwd()} (git ") for note in session.notes)
    fakes = FakeArms()
    assert run_session(session, RunnerHooks(Progress(), fakes)) == 0
    versions = {start.arm: content(start.planned.job.copy, "train.py") for start in fakes.starts}
    assert versions == {
        "one-device": b"import tfdist.measure  # now",
        "one-device (base)": b"import tfdist.measure  # 1",
    }
    Path("train.py").write_text("import tfdist.measure  # later")
    more = BenchOptions(resume=session.root, rounds=3)
    again = prepare(more, {host: CPU})
    assert content(again.arms.plans["one-device"].job.copy, "train.py") == b"import tfdist.measure  # now"
    with pytest.raises(
        TfdistError, match=r"the turns so far ran in a copy of other files; omit --copy, or start a new"
    ):
        prepare(replace(more, copy=pack(".")), {host: CPU})
    (session.root / "copy.tar.gz").unlink()
    with pytest.raises(TfdistError, match=r"copy\.tar\.gz cannot be read .*; start a new bench$"):
        prepare(more, {host: CPU})


def test_the_built_in_training_needs_no_copy(options: BenchOptions) -> None:
    with pytest.raises(
        TfdistError, match=r"^--copy: suite smoke runs the built-in training, which needs no copy; omit it"
    ):
        prepare(replace(options, against=None, program=(), copy=pack(".")), MACHINES)


def test_tasks_of_the_base_have_its_folder_as_their_working_directory(repository: Path, tmp_path: Path) -> None:
    request = Request({}, PROGRAM, paced=True)
    assert {task.program.cwd for task in plan(request, MACHINES).job.plans} == {str(repository)}
    request = replace(request, cwd=str(tmp_path))
    assert {task.program.cwd for task in plan(request, MACHINES).job.plans} == {str(tmp_path)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"program": ()}, "compares versions of your own program; give it after --"),
        ({"program": ("python", "new.py")}, "it has no new.py; choose another version"),
        ({"program": ("python", "{here}/new.py")}, "is the same file in both versions; give a relative path"),
        ({"explain": True, "suite": "cpu", "patterns": ()}, "omit --explain"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: BenchOptions, change: dict[str, object], sentence: str) -> None:
    if "program" in change:
        change = {"program": tuple(word.format(here=Path.cwd()) for word in change["program"])}  # type: ignore[attr-defined]
    with pytest.raises(TfdistError, match=f"^--against .*{sentence}"):
        prepare(replace(options, **change), MACHINES)  # type: ignore[arg-type]


def test_without_copies_both_versions_run_on_this_machine() -> None:
    table = {"against": ".", "command": ["true"], "arms": [{"name": "a", "strategy": "one-device"}]}
    for host in (Host("h2", "10.0.0.2"), replace(LOCAL, chdir="/tmp")):
        with pytest.raises(TfdistError, match=r"^--against \.: both versions are on this machine only: add --copy"):
            check_base(parse_suite(table, "s"), {host: CPU})


@pytest.mark.parametrize("name", [b" lead", b"not \xff utf-8", b"it's; new"])
def test_a_folder_of_the_repository_with_any_name_is_found_in_the_version(
    name: bytes, options: BenchOptions, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository.parent / os.fsdecode(name)
    folder.mkdir()
    (folder / "train.py").write_text("import tfdist.measure")
    monkeypatch.chdir(folder)
    git("add", "train.py")
    git("commit", "--quiet", "-m", "3")
    assert prepare(replace(options, against="HEAD"), MACHINES).bench.suite.against
    with base_version("HEAD") as version:
        assert version is not None
        assert (version.folder / "train.py").is_file()


def test_versions_get_the_starts_that_their_noise_asks_for(options: BenchOptions) -> None:
    session = prepare(replace(options, suite="cpu"), MACHINES)
    assert (session.bench.precision, session.bench.most_starts) == (PRECISION, MOST_STARTS) == (0.07, 20)
    assert session.notes[-1] == "more starts follow, up to 20 of each arm, until each ratio is known to within 7%"
    changes: tuple[dict[str, Any], ...] = (
        {"rounds": 8}, {"incarnations": 5}, {"budget_s": 900.0}, {"isolated": True}, {"suite": "smoke"},
    )  # fmt: skip
    for change in changes:
        assert prepare(replace(options, **{"suite": "cpu", **change}), MACHINES).bench.precision is None
    assert prepare(replace(options, suite="cpu", precision=0.1), MACHINES).bench.precision == 0.1


def test_a_gate_has_the_starts_that_it_needs_and_says_their_number(options: BenchOptions) -> None:
    needed, precision = gate_needs(1, 0.05, 3)
    suite = prepare(replace(options, suite="cpu", fail_slower=0.05), MACHINES)
    assert (suite.bench.suite.incarnations, suite.bench.suite.rounds) == (needed, 3 * needed)
    assert (suite.bench.precision, suite.bench.most_starts) == (precision, NOISY * needed)
    assert suite.notes[-2:] == (
        f"--fail-slower 5%: {needed} starts of each arm, to find a slow-down of 10% in 9 of 10 benches",
        f"more starts follow, up to {NOISY * needed} of each arm, until each ratio is known to within {precision:.1%}",
    )
    few = prepare(replace(options, fail_slower=0.05, rounds=4), MACHINES)
    each_of_one_turn, _ = gate_needs(1, 0.05, 1)
    assert few.bench.precision is None
    assert few.notes[-1].startswith(
        f"--fail-slower 5%: 4 starts of each arm, but at least {each_of_one_turn} are needed"
    )
    long = prepare(replace(options, suite="cpu", fail_slower=0.05, budget_s=1e6), MACHINES)
    assert (long.bench.suite, long.bench.precision) == (suite.bench.suite, precision)
    short = prepare(replace(options, suite="cpu", fail_slower=0.05, budget_s=120.0), MACHINES)
    assert short.bench.suite.incarnations < needed
    fewer = prepare(replace(options, suite="cpu", fail_slower=0.05, budget_s=0.8 * suite.estimate_s), MACHINES)
    assert fewer.bench.suite.incarnations == needed
    assert needed <= fewer.bench.suite.rounds < 3 * needed
    assert f"--fail-slower 5%: {needed} starts of each arm, but at least" in fewer.notes[-2]


def test_a_gate_on_a_machine_whose_equal_arms_differ_more_needs_more_starts(
    options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfdist.bench.session.floor_on", lambda machine: 0.015)
    gate = replace(options, suite="cpu", fail_slower=0.05)
    assert (
        prepare(gate, MACHINES).bench.suite.incarnations == gate_needs(1, 0.05, 3, 0.015)[0] > gate_needs(1, 0.05, 3)[0]
    )
    monkeypatch.setattr("tfdist.bench.session.floor_on", lambda machine: 0.03)
    with pytest.raises(TfdistError, match="100 starts would be too few to find a slow-down of 10%"):
        prepare(gate, MACHINES)


def test_a_precision_that_several_versions_cannot_reach_is_refused(options: BenchOptions) -> None:
    both = replace(options, suite="cpu", patterns=("one-device", "mirrored/auto"))
    assert prepare(replace(both, patterns=("one-device",), precision=0.022), MACHINES).bench.precision == 0.022
    with pytest.raises(TfdistError, match=r"^--precision 2\.2%: ratios of equal arms differ by up to 2\.2%"):
        prepare(replace(both, precision=0.022), MACHINES)


def test_a_baseline_of_versions_is_refused(options: BenchOptions) -> None:
    with pytest.raises(
        TfdistError, match=r"^--baseline mirrored/auto: with --against each arm is compared with itself"
    ):
        prepare(replace(options, suite="cpu", baseline="mirrored/auto"), MACHINES)


def test_two_benches_of_versions_can_be_compared(options: BenchOptions) -> None:
    patterns = ("one-device", "mirrored/auto")
    noise: dict[str, object] = {"noise": 0.005}
    for name, seconds in (("one", 0.1), ("two", 0.125)):
        session = prepare(replace(options, suite="cpu", patterns=patterns, out=options.out / name), MACHINES)  # type: ignore[operator]
        arms = {arm: noise for pair in session.bench.suite.version_pairs for arm in pair}
        behaviour = {**arms, "mirrored/auto": {**noise, "step_s": seconds}}
        run_session(session, RunnerHooks(Progress(), FakeArms(behaviour=behaviour)))
    assert options.out is not None
    found = compare_folders(options.out / "one", options.out / "two")
    assert {change.arm: str(change.comparison and change.comparison.verdict) for change in found.changes} == {
        "one-device": "cannot tell",
        "one-device (base)": "cannot tell",
        "mirrored/auto": "slower",
        "mirrored/auto (base)": "cannot tell",
    }


def test_a_resumed_bench_keeps_its_gate(options: BenchOptions) -> None:
    session = prepare(replace(options, fail_slower=0.05), MACHINES)
    run_session(session, RunnerHooks(Progress(), FakeArms(behaviour={"one-device": {"ctrl_c": 4}})))
    resumed = prepare(BenchOptions(resume=session.root), MACHINES)
    assert resumed.bench == session.bench
    assert resumed.bench.fail_slower == 0.05
    assert prepare(BenchOptions(resume=session.root, fail_slower=0.1), MACHINES).bench.fail_slower == 0.1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"against": None}, "^--fail-slower 5%: name the version"),
        ({"fail_slower": 0.0}, "^--fail-slower 0: must be"),
        ({"fail_slower": 0.01}, "^--fail-slower 1%: 100 starts would be too few to find a slow-down of 2%; give more"),
    ],
)
def test_a_gate_without_a_base_or_a_bound_is_refused(
    options: BenchOptions, change: dict[str, object], sentence: str
) -> None:
    with pytest.raises(TfdistError, match=sentence):
        prepare(replace(options, **{"fail_slower": 0.05, **change}), MACHINES)  # type: ignore[arg-type]


def test_a_slow_down_that_all_arms_share_is_found(options: BenchOptions) -> None:
    patterns = ("one-device", "mirrored/auto")
    session = prepare(replace(options, suite="cpu", patterns=patterns), MACHINES)
    slow = {name: {"step_s": 0.115, "noise": 0.01} for name in patterns}
    fast = {f"{name} (base)": {"step_s": 0.1, "noise": 0.01} for name in patterns}
    run_session(session, RunnerHooks(Progress(), FakeArms(behaviour={**slow, **fast})))
    report = make_report([session.root])
    found = {row.arm: row.over_base for row in report.rows if row.has_base}
    assert list(found) == [arm for arm, _ in session.bench.suite.version_pairs] == list(patterns)
    assert [comparison.verdict for comparison in found.values() if comparison] == ["slower", "slower"]
    assert found["one-device"] is not None
    assert found["one-device"].ratio == pytest.approx(0.1 / 0.115, rel=0.03)
    for arm in patterns:
        assert re.search(rf"{arm} is 1\d\.\d % slower than its base, surely between ", report.headline[0])
    assert [figure.meaning.partition(" (")[0] for figure in report.figures] == [
        f"{arm} over its base" for arm in patterns
    ]
    assert not {"kinds", "scaling", "efficiency"} & {section.key for section in report.sections}
    assert {row.arm: row.baseline for row in report.rows} == {
        arm: pair[1] for pair in session.bench.suite.version_pairs for arm in pair
    }


def test_the_trust_in_two_versions_is_how_sure_their_ratios_are(options: BenchOptions) -> None:
    session = prepare(replace(options, suite="cpu"), MACHINES)
    noise = {name: {"noise": 0.03} for name in ("one-device", "one-device (base)")}
    run_session(session, RunnerHooks(Progress(), FakeArms(behaviour=noise)))
    report = make_report([session.root])
    (row,) = [row for row in report.rows if row.has_base]
    half = row.statistics.ratio(row.label, "one-device (base)").half_width()
    assert report.verdicts[0].within == half
    assert report.headline[1].endswith(
        "that is how well the least certain ratio is known; no arm was measured twice (A/A)."
    )
