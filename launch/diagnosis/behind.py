"""Which task of a job that takes no more steps is behind the others. Pure."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.evidence import MOST_LINES
from tfdist.launch.diagnosis.failures import Diagnosis
from tfdist.launch.diagnosis.history import Stalled
from tfdist.launch.diagnosis.stack_text import Stack, stacks_of
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import NO_GPUS
from tfdist.launch.text import listed, shortened

BUSY_CORES, IDLE_CORES = 0.5, 0.1
"""Cores that the process of a busy task uses on average at least, and that of an idle one at most."""
MOST_NAMED = 4
"""Tasks whose positions are listed."""

_Found = tuple[tuple[str, ...], str]
"""The tasks that are behind, and the rest of the sentence that names them."""
_parsed = cache(stacks_of)


def stalled(case: Case, stall: Stalled) -> Diagnosis:
    """The diagnosis of a stall: the task that is behind, if the evidence names one."""
    rules: tuple[Callable[[Case, Stalled], _Found | None], ...]
    rules = (_suspended, _outside_tensorflow, _fewer_steps, _not_listening, _busy)
    tasks, words = next((found for rule in rules if (found := rule(case, stall)) is not None), _nobody(case))
    return Diagnosis(f"no step for {stall.timeout_s:g} s: {words}", ExitCode.STALL, tasks)


def stack_lines(case: Case, task: str) -> tuple[str, ...]:
    """The stack that shows where a task hangs, or what /proc shows of it; empty if nothing is known."""
    stacks = _stacks(case, task)
    if not stacks:
        return tuple(case.history.stacks.get(task, "").splitlines()[:MOST_LINES])
    hangs = _outside(stacks, task in case.job.leading) or next((stack for stack in stacks if stack.main), None)
    return hangs.lines[:MOST_LINES] if hangs is not None else ()


def _stacks(case: Case, task: str) -> list[Stack]:
    return _parsed(case.history.stacks.get(task, ""))


def _running(case: Case) -> list[str]:
    """Tasks that others may wait for."""
    return [task for task in case.needed if task not in case.by_themselves]


def _named(case: Case, tasks: Sequence[str]) -> str:
    who = [f"{task}{case.place(task)}" for task in tasks]
    return f"{listed(who)} {'is' if len(tasks) == 1 else 'are'}"


def _suspended(case: Case, _: Stalled) -> _Found | None:
    """Tasks that a signal or a debugger has stopped, or that wait for a device in the kernel."""
    states = {task: case.history.states[task] for task in _running(case) if task in case.history.states}
    stopped = tuple(task for task, state in states.items() if state.state in ("T", "t"))
    if stopped:
        return stopped, f"{_named(case, stopped)} stopped (state T: SIGSTOP or a debugger)"
    waiting = tuple(task for task, state in states.items() if state.state == "D")
    if not waiting or len(waiting) == len(states):
        return None
    wait = states[waiting[0]].wait or "a device"
    return waiting, f"{_named(case, waiting)} in the kernel (state D: waits for {wait})"


def _outside_tensorflow(case: Case, _: Stalled) -> _Found | None:
    """Tasks that execute something else while the others are in TensorFlow, where they wait for each other."""
    stacks = {task: each for task in _running(case) if (each := _stacks(case, task))}
    leading = case.job.leading  # the others serve, and their programs may do so outside TensorFlow
    outside = {task: stack for task, each in stacks.items() if (stack := _outside(each, task in leading)) is not None}
    if not outside or (len(outside) == len(stacks) and len(stacks) > 1):
        return None
    folders = {plan.task.name: plan.program.cwd for plan in case.job.plans}
    frames = {task: stack.caller or stack.frames[0] for task, stack in outside.items()}
    places = {task: f"{task}{case.place(task)} is in {frame.words(folders[task])}" for task, frame in frames.items()}
    more = len(places) - MOST_NAMED
    words = "; ".join([*list(places.values())[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
    return tuple(outside), f"{words}, not in TensorFlow" if len(stacks) > 1 else words


def _outside(stacks: Sequence[Stack], leads: bool) -> Stack | None:
    """What a task executes outside TensorFlow: in its main thread if it leads, or in a function for TensorFlow."""
    main = next((stack for stack in stacks if stack.main and leads and not stack.in_tensorflow), None)
    return main or next((stack for stack in stacks if stack.is_callback), None)


def _fewer_steps(case: Case, _: Stalled) -> _Found | None:
    """Tasks that have reported fewer steps. Those that report none at all are no evidence, unless they would.

    Nor are tasks that all wait in TensorFlow: each task of a custom program may report after another number of steps.
    """
    history, leading = case.history, [task for task in _running(case) if task in case.job.leading]
    waiting = [task for task in leading if any(stack.main and stack.in_tensorflow for stack in _stacks(case, task))]
    if waiting == leading and not case.job.reports_steps:
        return None
    reports = case.job.reports_steps and bool(history.steps)
    steps = {task: history.steps.get(task, (0, 0.0))[0] for task in leading if reports or task in history.steps}
    behind = tuple(task for task, step in steps.items() if step == min(steps.values()))
    others = [step for task, step in steps.items() if task not in behind]
    if not others:
        return None
    ahead = f"{min(others)}" if min(others) == max(others) else f"{min(others)} to {max(others)}"
    rest = "the others" if len(others) > 1 else "the other"
    return behind, f"{_named(case, behind)} behind (step {steps[behind[0]]}, {rest} {ahead})"


def _not_listening(case: Case, _: Stalled) -> _Found | None:
    """Tasks that do not accept connections yet, for which the others wait."""
    with_port = [plan.task.name for plan in case.job.plans if case.job.cluster.port(plan.task)]
    missing = tuple(task for task in _running(case) if task in with_port and task not in case.listening)
    if not missing or len(missing) == len(with_port):
        return None
    listens = "does not listen on its port" if len(missing) == 1 else "do not listen on their ports"
    return missing, f"{listed([f'{task}{case.place(task)}' for task in missing])} {listens} yet"


def _busy(case: Case, stall: Stalled) -> _Found | None:
    """One task that computes while the others are idle. With GPUs, NCCL may use the cores of those that wait."""
    used: Mapping[str, float] = stall.cores_used
    busy = tuple(task for task, cores in used.items() if cores >= BUSY_CORES)
    idle = [task for task, cores in used.items() if cores <= IDLE_CORES]
    gpus = any(plan.program.env.get("CUDA_VISIBLE_DEVICES", NO_GPUS) != NO_GPUS for plan in case.job.plans)
    if len(busy) != 1 or not idle or len(busy) + len(idle) < len(used) or gpus:
        return None
    return busy, f"{_named(case, busy)} busy ({used[busy[0]]:.1f} cores), {shortened(idle)} idle"


def _nobody(case: Case) -> _Found:
    running = _running(case)
    if len(running) == 1:
        main = next((each for each in _stacks(case, running[0]) if each.main), None)
        caller = main.caller if main is not None else None
        folder = next(plan.program.cwd for plan in case.job.plans if plan.task.name == running[0])
        where = f" in TensorFlow, called from {caller.words(folder)}" if caller is not None else " hangs"
        return (running[0],), f"{running[0]}{case.place(running[0])}{' is' if caller else ''}{where}"
    steps = [step for step, _ in case.history.steps.values()]
    return (), f"no task is behind the others{f' (step {max(steps)})' if steps else ''}"
