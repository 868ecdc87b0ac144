"""Two versions of a program in one bench (--against): where the earlier one is, and its arms."""

import shlex
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
from tfdist.launch.git import git
from tfdist.launch.job import Program, program_of
from tfdist.launch.machine import Machines
from tfdist.launch.program_copy import ProgramCopy


def pinned(against: str) -> str:
    """What --against names: a folder as it is given, or the hash of a revision of the current folder's git repository.

    How it is written decides which of them it is: a folder in the repository must not take the place of a revision.

    Raises:
        TfdistError: there is no such folder or revision, or several revisions have this name.
    """
    option = f"--against {against}"
    if _is_folder(against):
        if Path(against).is_dir():
            return against
        raise TfdistError(f"{option}: no such folder; give another, or a git revision, as HEAD~1")
    found = git("rev-parse", "--verify", f"{against}^{{commit}}")
    if found.returncode or against.startswith(("-", "^")):  # an option, or what a revision excludes
        reason = found.stderr.partition("\n")[0].removeprefix("fatal: ")
        why = f" ({reason})" if reason and "single revision" not in reason else ""
        folder = Path(against).is_dir()
        fix = f"for the folder write ./{against}" if folder else "give one, as HEAD~1, or a folder, as ./base"
        raise TfdistError(f"{option}: not a git revision here{why}; {fix}")
    if "is ambiguous" in found.stderr:
        fix = "give its hash, or its full name, as refs/heads/main"
        raise TfdistError(f"{option}: the name of several git references; {fix}")
    return found.stdout.strip()


def _is_folder(against: str) -> bool:
    return against in (".", "..") or against.startswith(("./", "../", "/"))


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
    pairs = ((arm, replace(arm, name=arm.name + BASE, levels={})) for arm in suite.arms)
    return replace(suite, arms=tuple(arm for pair in pairs for arm in pair))


def check_base(suite: Suite, machines: Machines, copy: ProgramCopy | None = None) -> None:
    """Refuse programs that the earlier version lacks, or shares. `copy`: both versions travel.

    Raises:
        TfdistError: naming the program; or tasks would run on other machines or in another folder.
    """
    against = suite.against
    if against is None:
        return
    pinned(against)  # a resumed bench has read it from its folder
    if copy is None and any(host.chdir or not host.local for host in machines):
        fix = "add --copy, with which they travel; or omit --hosts and --chdir"
        raise TfdistError(f"--against {against}: both versions are on this machine only: {fix}")
    for command in dict.fromkeys(arm.command for arm in suite.arms):
        file = _file_of(program_of(command, {}, machines, copy))
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
    if _is_folder(against):
        return Path(against, file).exists()
    return git("cat-file", "-e", f"{against}:./{file}").returncode == 0


@contextmanager
def base_version(against: str | None) -> Iterator[Version | None]:
    """The earlier version, in a worktree that is removed at the end if it is a git revision; None: there is none.

    Raises:
        TfdistError: git cannot make the worktree.
    """
    if against is None:
        yield None
    elif _is_folder(against):
        yield Version(Path(against).resolve(), f"cd {shlex.quote(against)} && ")
    else:
        with tempfile.TemporaryDirectory(
            prefix="tfdist-against-", dir=temporary_root(), ignore_cleanup_errors=True
        ) as parent:
            tree = Path(parent) / "tree"
            added = git("worktree", "add", "--detach", "--quiet", str(tree), against)
            try:
                if added.returncode:
                    reason = " ".join(added.stderr.split())
                    raise TfdistError(f"--against {against}: git worktree failed ({reason}); give a folder instead")
                folder = tree / git("rev-parse", "--show-prefix").stdout.removesuffix("\n")
                yield Version(folder, f"git switch --detach {against[:12]} && ")
            finally:
                git("worktree", "remove", "--force", str(tree))
