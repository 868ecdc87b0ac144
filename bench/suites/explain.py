"""The arms that `explain` adds to a suite, so that each loss can be divided into its parts. Pure."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from tfdist.bench.references import DISTRIBUTION, Reference, Spec, explainable, has_step_times, identity, reference
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import Suite
from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.table import SYNTHETIC
from tfdist.strategies.choice import StrategyChoice

_OF_REAL_DATA = ("data_dir", "shuffle", "evaluate", "evaluate_turns")
"""Keys that synthetic data does not take."""
STEP_TIMES = "(step times)"
"""Part of the name of an arm that only measures the step times of another one."""


def explained(suite: Suite, specs: Mapping[str, StrategyChoice]) -> tuple[Suite, tuple[str, ...]]:
    """The suite with step times, and the arms that its arms with several devices are compared with; and their names.

    An arm that is in the suite is not added again. On GPUs reading the clock waits for the device, which costs time, so
    that step times are measured in turns of their own, by arms of their own.

    Args:
        suite: the arms; those without a spec are kept as they are.
        specs: of the arms that can run, by name.

    Raises:
        TfdistError: there is no loss to explain, or arms end when they have learned enough.
    """
    if suite.until_accuracy is not None:
        fix = "use a suite without until_accuracy"
        raise TfdistError(f"explain: the arms of suite {suite.name} end at an accuracy; {fix}")
    known = [_SuiteArm(arm, _spec(arm, specs[arm.name])) for arm in suite.arms if arm.name in specs]
    if len(known) == len(suite.arms) and not any(explainable(each.spec) for each in known):
        raise TfdistError(f"explain: no arm of suite {suite.name} has several devices that exchange gradients; omit it")
    seen = {each.key for each in known}
    for entry in [each for each in known if explainable(each.spec)]:
        for needed in _needed(entry, {each.arm.name for each in known}):
            if needed.key not in seen:
                seen.add(needed.key)
                known.append(needed)
    timed = {}
    for entry in known:
        arm, spec = entry.arm, entry.spec
        if not spec.get("step_times") and has_step_times(spec) and _needs_phases(entry, known):
            name = f"{arm.name} {STEP_TIMES}" if spec.get("gpus") else arm.name
            levels = arm.levels if name == arm.name else {}
            timed[name] = replace(arm, name=name, choices={**arm.choices, "step_times": True}, levels=levels)
    every = {arm.name: arm for arm in (*suite.arms, *(each.arm for each in known), *timed.values())}
    before = {arm.name for arm in suite.arms}
    return replace(suite, arms=tuple(every.values())), tuple(name for name in every if name not in before)


@dataclass(frozen=True)
class _SuiteArm:
    """An arm and its complete spec."""

    arm: Arm
    spec: Spec

    @property
    def key(self) -> tuple[int, str]:
        """Equal for arms that do the same on as many hosts."""
        return self.arm.hosts, identity(self.spec)


def _spec(arm: Arm, choice: StrategyChoice) -> Spec:
    return {**choice.to_json(), **({"command": list(arm.command)} if arm.command else {})}


def _needed(entry: _SuiteArm, names: Set[str]) -> Iterator[_SuiteArm]:
    arm, spec = entry.arm, entry.spec
    if spec.get("dataset", SYNTHETIC) != SYNTHETIC:
        spec = reference(spec, Reference.SYNTHETIC)
        choices = {key: value for key, value in arm.choices.items() if key not in _OF_REAL_DATA}
        arm = replace(arm, choices={**choices, "dataset": SYNTHETIC, "classes": spec["classes"]})
        yield _SuiteArm(replace(arm, name=f"{arm.name} (synthetic data)", levels={}), spec)
    for which in (Reference.ONE_DEVICE, Reference.PLAIN, Reference.INDEPENDENT):
        wanted = reference(spec, which)
        choices = {key: value for key, value in arm.choices.items() if key not in DISTRIBUTION}
        choices["strategy"] = wanted["strategy"]
        hosts = 1
        if which is Reference.INDEPENDENT:
            choices["workers"] = wanted["workers"]
            hosts = arm.hosts
        size = f"/{wanted['workers']}" if wanted["workers"] > 1 else ""
        name = f"{which}{size}" + (f"/{hosts}-hosts" if hosts > 1 else "")
        name = f"{name} for {entry.arm.name}" if name in names else name
        yield _SuiteArm(Arm(name, choices, hosts, arm.command), wanted)


def _needs_phases(entry: _SuiteArm, known: Sequence[_SuiteArm]) -> bool:
    if explainable(entry.spec):
        return entry.spec.get("dataset") == SYNTHETIC
    alike = [each for each in known if explainable(each.spec) and each.arm.hosts == entry.arm.hosts]
    return any(identity(entry.spec) == identity(reference(each.spec, Reference.INDEPENDENT)) for each in alike)


def parts_of(suite: Suite, specs: Mapping[str, StrategyChoice], arms: Set[str]) -> set[str]:
    """The arms of a suite with which the losses of these ones are explained, themselves included."""
    known = [_SuiteArm(arm, _spec(arm, specs[arm.name])) for arm in suite.arms if arm.name in specs]
    wanted = [each for each in known if each.arm.name in arms]
    keys = {each.key for each in wanted}
    keys |= {part.key for each in wanted if explainable(each.spec) for part in _needed(each, specs.keys())}
    return {each.arm.name for each in known if each.key in keys}
