"""A command of the command line in place of the built-in training. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from tfdist.bench.suites.arm import STRATEGY_KEYS, Arm
from tfdist.bench.suites.suite import Suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import REDACTED


def with_command(suite: Suite, command: Sequence[str], built_in: bool) -> tuple[Suite, tuple[str, ...]]:
    """The suite with all of its arms running `command`, and notes about what that changes.

    Args:
        suite: the arms' strategies.
        command: the user's program; empty: nothing changes.
        built_in: its training keys are dropped; arms that then do the same as an earlier one are left out.

    Raises:
        TfdistError: an arm of the user's own suite describes the built-in training, or has another command.
    """
    if not command:
        return suite, ()
    arms: list[tuple[Arm, Arm]] = []
    notes: list[str] = []
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
        same = next((other.name for before, other in arms if _alike(new, other) and not _alike(old, before)), None)
        if same is None:
            arms.append((old, new))
        else:
            notes.append(f"left out: {old.name} does the same as {same} with your own program")
    return replace(suite, arms=tuple(arm for _, arm in arms)), tuple(notes)


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
