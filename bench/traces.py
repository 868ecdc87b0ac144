"""Traces under tf.profiler: one more turn for an arm, after those that are timed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfdist.bench.folder import BenchPaths, slug
from tfdist.bench.group import Group
from tfdist.bench.suites.arms import Arms
from tfdist.launch.errors import TfdistError
from tfdist.launch.events import Turn

STEPS = 5
"""Steps of a trace: each has thousands of operations."""


@dataclass(frozen=True)
class Traces:
    """The folder of each arm's traces, with a folder below it for each task; and why an arm has none."""

    folders: Mapping[str, Path]
    notes: tuple[str, ...] = ()


NO_TRACES = Traces({})


def plan_traces(root: Path, arms: Arms) -> Traces:
    """The traces of a bench in `root`.

    Raises:
        TfdistError: no arm can be traced.
    """
    reasons = {arm: reason for arm in arms.specs if (reason := _reason(arm, arms))}
    if len(reasons) == len(arms.specs):
        reason = next(iter(reasons.values()), "no arm can run here")
        raise TfdistError(f"--trace: {reason}; omit --trace")
    traces = BenchPaths(root).root.absolute() / "traces"
    folders = {arm: traces / slug(arm) for arm in arms.specs if arm not in reasons}
    return Traces(folders, tuple(f"{arm}: no trace: {reason}" for arm, reason in reasons.items()))


def _reason(arm: str, arms: Arms) -> str:
    if arm in arms.commands:
        return "it runs your own program, which can call tf.profiler.experimental itself"
    if not all(host.local for host in arms.machines[arm]):
        return "its tasks would write it on other hosts"
    return ""


def trace(group: Group, traces: Traces) -> None:
    """Let each arm of the group train a few steps under tf.profiler, unless it has a trace."""
    for arm in list(group.members):
        folder = traces.folders.get(arm)
        if folder is None or folder.exists():
            continue
        group.progress.note(f"tracing {arm}")
        group.trace(arm, Turn(1, STEPS, str(folder)))
        if arm in group.members and not any(folder.rglob("*.xplane.pb")):
            group.progress.note(f"{arm}: tf.profiler wrote no trace; see the arm's logs in runs/")
