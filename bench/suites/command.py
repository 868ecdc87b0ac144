"""A command in place of the built-in training: which arms of a suite it can run, and whether it measures anything."""

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from tfdist.bench.suites.arm import STRATEGY_KEYS, Arm
from tfdist.bench.suites.suite import Suite
from tfdist.jobs.exchange_checks import check_program
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program
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
        where = f"suite {suite.name}, arm {old.name!r}, has"
        stray = next((key for key in old.choices if key not in STRATEGY_KEYS), None)
        if old.command and not built_in:
            raise TfdistError(f"{where} a command and another follows --: omit one")
        if stray and not built_in:
            raise TfdistError(
                f"{where} {stray}, which is for the built-in training, but a COMMAND was given: omit {stray}"
            )
        choices = {key: value for key, value in old.choices.items() if key in STRATEGY_KEYS}
        new = replace(old, choices=choices, command=tuple(command))
        same = any(_alike(new, other) and not _alike(old, before) for before, other in arms)
        if same or (built_in and not _runs_programs(StrategyChoice(**choices))):
            left_out.append(old.name)
        else:
            arms.append((old, new))
    why = "they differ from others only in the built-in training, or need it"
    notes = (f"left out with your own program, because {why}: {shortened(left_out)}",) if left_out else ()
    return replace(suite, arms=tuple(arm for _, arm in arms)), notes


def _runs_programs(choice: StrategyChoice) -> bool:
    try:
        check_program(choice)
    except TfdistError:
        return False
    return True


def check_complete(suite: Suite, option: str) -> None:
    """Refuse a suite that was saved without the secrets of its commands.

    Raises:
        TfdistError: an arm's command has a masked word.
    """
    masked = next((arm.name for arm in suite.arms if any(REDACTED in word for word in arm.command)), None)
    if masked is not None:
        raise TfdistError(
            f"{option}: the command of {masked} has secrets, which are not saved: give it again, after -- "
            "or with --suite FILE"
        )


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
    if not program.python or not words or (words[0].startswith("-") and words[:1] != ["-m"]):
        return
    folder = Path() if words[0] == "-m" else Path(words[0]).parent
    files = list(_files(folder, words[1])) if words[0] == "-m" else [Path(words[0])]
    for path in files:  # grows
        try:
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
        except (OSError, SyntaxError, ValueError):
            return
        if (_SIGNS | _LOADERS) & {word for node in nodes for word in _words(node)}:
            return
        for base, name in (each for node in nodes for each in _imported(node, path, folder)):
            found = list(_files(base, name))
            if not found and base == folder and not _installed(name.partition(".")[0]):
                return
            files += [file for file in found if file not in files]
    if files:
        raise TfdistError(
            f"{shortened(map(str, files))}: no step would be measured: call tfdist.measure.steps() or pass "
            "tfdist.measure.Callback() to fit, as docs/convert.md shows"
        )


def _words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text) | ast.ImportFrom(module=str(text)):
            yield from text.split(".")
        case ast.Constant(value=str(text)):
            yield text


def _imported(node: ast.AST, path: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """The modules that may be imported there, with the folder that they are in unless they are installed."""
    match node:
        case ast.Import(names):
            yield from ((folder, alias.name) for alias in names)
        case ast.ImportFrom(module, names, level):
            base = path.parents[level - 1] if level else folder
            yield from ((base, ".".join(filter(None, [module, alias.name]))) for alias in names)


def _files(folder: Path, module: str) -> Iterator[Path]:
    """The files of a module and of the packages around it."""
    parts = module.split(".")
    for stem in (folder.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)):
        yield from (file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file())


def _installed(name: str) -> bool:
    """Whether it is a module of Python or of an installed package, which is taken to measure nothing."""
    if name in sys.stdlib_module_names or name == "tfdist":
        return True
    spec = find_spec(name)
    return spec is not None and bool({"site-packages", "dist-packages"} & {*Path(spec.origin or "").parts})
