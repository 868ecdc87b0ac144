"""A command in place of the built-in training: which arms of a suite it can run, and whether it measures anything."""

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from tfdist.bench.suites.arm import STRATEGY_KEYS, Arm, refuse_training
from tfdist.bench.suites.suite import Suite
from tfdist.jobs.exchange_checks import check_program
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.job import Program
from tfdist.launch.json_files import read_bytes
from tfdist.launch.machine import Machines
from tfdist.launch.redact import REDACTED
from tfdist.launch.text import shortened
from tfdist.strategies.choice import StrategyChoice


def with_command(suite: Suite, command: Sequence[str], built_in: bool) -> tuple[Suite, tuple[str, ...]]:
    """The suite with all of its arms running `command`, and notes about what that changes.

    Args:
        suite: the arms' strategies.
        command: the user's program; empty: nothing changes.
        built_in: its training keys are dropped; arms that then do the same as an earlier one, or that only the
            built-in training can run, are left out.

    Raises:
        TfdistError: an arm of the user's own suite describes the built-in training, or has another command.
    """
    if not command:
        return suite, ()
    arms: list[tuple[Arm, Arm]] = []
    left_out: list[str] = []
    for old in suite.arms:
        where = f"suite {suite.name}, arm {old.name!r},"
        if old.command and not built_in:
            raise TfdistError(f"{where} has a command and another follows --: omit one")
        if not built_in:
            refuse_training(old.choices, where)
        choices = {key: value for key, value in old.choices.items() if key in STRATEGY_KEYS}
        new = replace(old, choices=choices, command=tuple(command))
        with suppress(TfdistError):
            if built_in:
                check_program(StrategyChoice(**choices))
            if not any(_alike(new, other) and not _alike(old, before) for before, other in arms):
                arms.append((old, new))
                continue
        left_out.append(old.name)
    why = "they differ from others only in the built-in training, or need it"
    notes = (f"left out with your own program, because {why}: {shortened(left_out)}",) if left_out else ()
    return replace(suite, arms=tuple(arm for _, arm in arms)), notes


def check_complete(suite: Suite, option: str) -> None:
    """Refuse a suite that was saved without the secrets of its commands.

    Raises:
        TfdistError: an arm's command has a masked word.
    """
    masked = next((arm.name for arm in suite.arms if any(REDACTED in word for word in arm.command)), None)
    if masked is not None:
        fix = "give it again, after -- or with --suite FILE"
        raise TfdistError(f"{option}: the command of {masked} has secrets, which are not saved: {fix}")


def _alike(one: Arm, other: Arm) -> bool:
    return (one.choices, one.hosts) == (other.choices, other.hosts)


_SIGNS = frozenset(["measure", "TFDIST_EVENTS_FD", "TFDIST_TURNS"])
_LOADERS = frozenset(["importlib", "runpy", "subprocess", "__import__", "exec", "execv", "execvp", "system"])
"""Words of a program that runs code which it does not import."""


def check_measures(program: Program) -> None:
    """Refuse a Python program that names neither tfdist.measure nor the protocol, nor imports a file that does.

    One that cannot be read here, or that may run other code, passes.

    Raises:
        TfdistError: no step of it would be measured.
    """
    words = [word for word in program.argv if word != "-u"]
    is_module = words[:1] == ["-m"]
    if not program.python or not words[is_module:] or (words[0].startswith("-") and not is_module):
        return
    base = _base(program)
    folder = base if is_module else base.joinpath(words[0]).parent
    files = list(_files(folder, words[1])) if is_module else [base / words[0]]
    for path in files:  # grows
        try:
            nodes = list(ast.walk(ast.parse(read_bytes(path))))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
            return
        texts = [getattr(node, name, None) for node in nodes for name in ("id", "attr", "name", "module", "value")]
        names = [text for text in texts if isinstance(text, str)]
        if (_SIGNS | _LOADERS) & {word for name in names for word in name.split(".")}:
            return
        for node in (each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)):
            level, module = getattr(node, "level", 0), getattr(node, "module", None)
            for name in (".".join(filter(None, [module, alias.name])) for alias in node.names):
                found = list(_files([*path.absolute().parents][:level][-1] if level else folder, name))
                top = name.partition(".")[0]
                if not found and not level and top not in {*sys.stdlib_module_names, "tfdist"}:
                    origin = getattr(find_spec(top), "origin", None)  # an installed package is taken to measure nothing
                    if not {"site-packages", "dist-packages"} & {*Path(origin or "").parts}:
                        return
                files += [file for file in found if file not in files]
    if files:
        fix = "call tfdist.measure.steps() or pass tfdist.measure.Callback() to fit, as docs/convert.md shows"
        raise TfdistError(f"{shortened(map(str, files))}: no step would be measured: {fix}")


def check_imports(program: Program, machines: Machines) -> None:
    """Refuse a script that imports a package at its start which the Python of this machine does not have.

    Raises:
        MissingHardwareError: it does; an arm that cannot run here.
    """
    script = next((word for word in program.argv if word.endswith(".py")), "")
    if not program.python or not script or any(not host.local or host.python for host in machines):
        return
    path = _base(program) / script
    try:
        nodes = ast.parse(read_bytes(path)).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    for top in dict.fromkeys(name.partition(".")[0] for name in names):
        if not any(_files(path.parent, top)) and top not in sys.stdlib_module_names and find_spec(top) is None:
            raise MissingHardwareError(f"{script} imports {top}, which is not installed: pip install {top}")


def _base(program: Program) -> Path:
    """The folder of a program: its path is short if it is the current one."""
    return Path() if program.cwd == str(Path.cwd()) else Path(program.cwd)


def _files(folder: Path, module: str) -> Iterator[Path]:
    """The files of a module and of the packages around it."""
    parts = module.split(".")
    for stem in (folder.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)):
        yield from (file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file())
