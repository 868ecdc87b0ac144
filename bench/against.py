"""Two versions of a program in one bench (--against): where the earlier one is, and its arms."""

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tfdist.bench.suites.arm import LONGEST_NAME
from tfdist.bench.suites.arms import Version
from tfdist.bench.suites.suite import BASE, Suite
from tfdist.launch.agent_program.system import temporary_root
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program, program_of
from tfdist.launch.machine import Machines


def pinned(against: str) -> str:
    """What --against names: a folder as it is given, or the hash of a git revision of the current one.

    Raises:
        TfdistError: it is neither.
    """
    if Path(against).is_dir():
        return against
    found = _git("rev-parse", "--verify", "--quiet", f"{against}^{{commit}}")
    if found.returncode:
        raise TfdistError(f"--against {against}: neither a folder nor a git revision here; give one of them, as HEAD~1")
    return found.stdout.strip()


PRECISION, MOST_STARTS = 0.07, 20
"""Starts are added by default until every ratio is known to within this share, but at most to this number: then a
slow-down of 10 % is found in 9 of 10 benches or more, of turns that differ by up to 10 %, simulated
(bench_results/calibration/statistics.md)."""


def with_base(suite: Suite) -> Suite:
    """The suite with each arm twice, `ARM` and `ARM (base)`, unless it has them, or compares with no other version.

    Raises:
        TfdistError: an arm runs the built-in training.
    """
    if suite.against is None or suite.version_pairs:
        return suite
    option = f"--against {suite.against}"
    if not all(arm.command for arm in suite.arms):
        raise TfdistError(f"{option}: compares versions of your own program; give it after --, as -- python train.py")
    if suite.explain:
        raise TfdistError(f"{option}: lost time is explained for one version; omit --explain")
    long = next((arm.name for arm in suite.arms if len(arm.name + BASE) > LONGEST_NAME), None)
    if long:
        raise TfdistError(f"{option}: the arm {long[:40]!r}... has too long a name; shorten it by {len(BASE)}")
    return replace(suite, arms=tuple(each for arm in suite.arms for each in (arm, replace(arm, name=arm.name + BASE))))


def check_base(suite: Suite, machines: Machines) -> None:
    """Refuse programs that the earlier version lacks, or shares.

    Raises:
        TfdistError: naming the program; or tasks would run on other machines or in another folder.
    """
    against = suite.against
    if against is None:
        return
    if any(host.chdir or not host.local for host in machines):
        raise TfdistError(f"--against {against}: both versions run on this machine; omit --hosts and --chdir")
    for command in dict.fromkeys(arm.command for arm in suite.arms):
        file = _file_of(program_of(command, {}, machines))
        if Path(file).is_absolute():
            raise TfdistError(f"--against {against}: {file} is the same file in both versions; give a relative path")
        if not _has(against, file):
            what = f"it has no {file or 'folder like this one'}"
            raise TfdistError(f"--against {against}: {what}; choose another version")


def _file_of(program: Program) -> str:
    """The file that runs, if the command names one."""
    word = next((word for word in program.argv if word != "-u"), "")
    return word if (program.python and not word.startswith("-")) or "/" in word else ""


def _has(against: str, file: str) -> bool:
    if Path(against).is_dir():
        return Path(against, file).exists()
    return _git("cat-file", "-e", f"{against}:./{file}").returncode == 0


@contextmanager
def base_version(against: str | None) -> Iterator[Version | None]:
    """The earlier version, in a worktree that is removed at the end if it is a git revision; None: there is none.

    Raises:
        TfdistError: git cannot make the worktree.
    """
    if against is None:
        yield None
    elif Path(against).is_dir():
        yield Version(Path(against).resolve(), f"cd {shlex.quote(against)} && ")
    else:
        with tempfile.TemporaryDirectory(
            prefix="tfdist-against-", dir=temporary_root(), ignore_cleanup_errors=True
        ) as parent:
            tree = Path(parent) / "tree"
            added = _git("worktree", "add", "--detach", "--quiet", str(tree), against)
            try:
                if added.returncode:
                    reason = " ".join(added.stderr.split())
                    raise TfdistError(f"--against {against}: git worktree failed ({reason}); give a folder instead")
                folder = tree / _git("rev-parse", "--show-prefix").stdout.removesuffix("\n")
                yield Version(folder, f"git switch --detach {against[:12]} && ")
            finally:
                _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, errors="surrogateescape", check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", "git is not installed")
