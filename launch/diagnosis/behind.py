"""Which task of a job that takes no more steps is behind the others, by the stacks of its threads. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tfdist.launch.agents.messages import Listening
from tfdist.launch.diagnosis.case import Case, Diagnosis
from tfdist.launch.diagnosis.evidence import MOST_LINES
from tfdist.launch.diagnosis.history import Stall
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import NO_GPUS
from tfdist.launch.text import listed, shortened

_PROCESS = re.compile(r"--- \S+ process \d+, from ")
"""The line before the stacks of each process."""
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+\b.*\(most recent call first\):$|Thread (?:0x)?\w+ \(.*\)")
"""The line before the frames of a thread: of faulthandler, or of py-spy."""
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_SPY_FRAME = re.compile(r"    (?P<name>\S.*) \((?P<file>(?:(?! \().)*):(?P<line>\d+)\)")
_SPY_MAIN = ': "MainThread"'
_CUT = "..."
"""faulthandler leaves out the oldest of more than 100 threads, which include the main thread."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/")
_STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|/lib/python3\d*\.zip/|<frozen ")
_TENSORFLOW = re.compile(r"/(?:site|dist)-packages/(?:tensorflow|tf_keras|keras)/")


@dataclass(frozen=True)
class Frame:
    """A call on a stack."""

    function: str
    file: str
    line: str

    @property
    def in_standard_library(self) -> bool:
        """Whether it is in a module of Python itself."""
        return _STANDARD_LIBRARY.search(self.file) is not None

    @property
    def in_program(self) -> bool:
        """Whether it is in the user's program or in tfdist, not in a package."""
        return not self.in_standard_library and _LIBRARY.search(self.file) is None

    @property
    def in_tensorflow(self) -> bool:
        """Whether it is in TensorFlow or Keras, or where tfdist waits for the other tasks."""
        at_barrier = self.function == "wait_at_barrier" and self.file.endswith("/tfdist/launch/events.py")
        return at_barrier or _TENSORFLOW.search(self.file) is not None

    def words(self, folder: str) -> str:
        """`load() at train.py:12`; files in `folder` are relative to it."""
        file = self.file.removeprefix(f"{folder}/")
        function = self.function if self.function.startswith("<") else f"{self.function}()"
        return f"{function} at {_LIBRARY.split(file)[-1]}:{self.line}"


@dataclass(frozen=True)
class Stack:
    """The frames of a thread, the innermost first, and its lines."""

    frames: tuple[Frame, ...]
    lines: tuple[str, ...]
    main: bool

    @property
    def position(self) -> Frame | None:
        """The innermost frame that is not in the standard library; None: all are."""
        return next((frame for frame in self.frames if not frame.in_standard_library), None)

    @property
    def caller(self) -> Frame | None:
        """The innermost frame in the program; None without one."""
        return next((frame for frame in self.frames if frame.in_program), None)

    @property
    def in_tensorflow(self) -> bool:
        """The thread executes or waits for something in TensorFlow."""
        return self.position is not None and self.position.in_tensorflow

    @property
    def is_callback(self) -> bool:
        """TensorFlow has called a function of the program, which has not returned (tf.py_function, a generator)."""
        called = any(frame.in_tensorflow for frame in self.frames)
        return called and self.position is not None and not self.position.in_tensorflow


def stacks_of(text: str) -> list[Stack]:
    """The stacks in a text, the main thread's first; of several processes, those of the first. Empty without any."""
    blocks = _blocks(text)
    main = next((at for at, (header, _) in enumerate(blocks) if header.endswith(_SPY_MAIN)), None)
    if main is None and any(_CUT in lines for _, lines in blocks):
        main = next((at for at, (header, _) in enumerate(blocks) if header.startswith("Current")), None)
    main = len(blocks) - 1 if main is None else main  # faulthandler lists the newest thread first
    stacks = []
    for at, (header, lines) in enumerate(blocks):
        matches = filter(None, (_FRAME.fullmatch(line) or _SPY_FRAME.fullmatch(line) for line in lines))
        frames = tuple(Frame(match["name"], match["file"], match["line"]) for match in matches)
        stacks.append(Stack(frames, (header, *lines), at == main))
    return sorted((stack for stack in stacks if stack.frames), key=lambda stack: not stack.main)


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """Each thread's header and lines."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if blocks and _PROCESS.match(line):
            break
        if _THREAD.match(line):
            blocks.append((line, []))
        elif blocks and line:
            blocks[-1][1].append(line)
    return blocks


BUSY_CORES, IDLE_CORES = 0.5, 0.1
"""Cores that the process of a busy task uses on average at least, and that of an idle one at most."""

_Finding = tuple[tuple[str, ...], str]
"""The tasks that are behind, and the rest of the sentence that names them."""
_parsed = cache(stacks_of)


def stalled(case: Case, stall: Stall) -> Diagnosis:
    """The diagnosis of a stall: the task that is behind, if the evidence names one."""
    rules = (_suspended, _outside_tensorflow, _fewer_steps, _not_listening, _busy)
    tasks, words = next(filter(None, (rule(case, stall) for rule in rules)), ((), ""))
    running = _running(case)
    if not tasks and len(running) == 1:
        task = running[0]
        tasks = (running[0],)
        caller = next((each.caller for each in _stacks(case, task) if each.main), None)
        folder = next(plan.program.cwd for plan in case.job.plans if plan.task.name == task)
        hangs = "hangs" if caller is None else f"is in TensorFlow, called from {caller.words(folder)}"
        words = f"{task}{case.place(task)} {hangs}"
    elif not tasks:
        steps = [step for step, _ in case.history.steps.values()]
        words = "no task is behind the others" + (f" (step {max(steps)})" if steps else "")
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


def _suspended(case: Case, _: Stall) -> _Finding | None:
    """Tasks that a signal or a debugger has stopped, or that wait for a device in the kernel."""
    running = _running(case)
    states = case.history.states
    stopped = case.frozen(running)
    if stopped:
        return stopped, case.frozen_sentence(stopped)
    waiting = tuple(task for task in running if task in states and states[task].state == "D")
    if not waiting or len(waiting) == len(states.keys() & set(running)):
        return None
    wait = states[waiting[0]].wait or "a device"
    return waiting, f"{case.subject(waiting)} in the kernel (state D: waits for {wait})"


def _outside_tensorflow(case: Case, _: Stall) -> _Finding | None:
    """Tasks that execute something else while the others are in TensorFlow, where they wait for each other."""
    stacks = {task: each for task in _running(case) if (each := _stacks(case, task))}
    leading = case.job.leading  # the others serve, and their programs may do so outside TensorFlow
    outside = {task: stack for task, each in stacks.items() if (stack := _outside(each, task in leading)) is not None}
    if not outside or (len(outside) == len(stacks) and len(stacks) > 1):
        return None
    folders = {plan.task.name: plan.program.cwd for plan in case.job.plans}
    frames = {task: stack.caller or stack.frames[0] for task, stack in outside.items()}
    places = {task: f"{task}{case.place(task)} is in {frame.words(folders[task])}" for task, frame in frames.items()}
    words = shortened(places.values(), between="; ")
    return tuple(outside), f"{words}, not in TensorFlow" if len(stacks) > 1 else words


def _outside(stacks: Sequence[Stack], leads: bool) -> Stack | None:
    """What a task executes outside TensorFlow: in its main thread if it leads, or in a function for TensorFlow."""
    main = next((stack for stack in stacks if stack.main and leads and not stack.in_tensorflow), None)
    return main or next((stack for stack in stacks if stack.is_callback), None)


def _fewer_steps(case: Case, _: Stall) -> _Finding | None:
    """Tasks that have reported fewer steps. Those that report none at all are no evidence, unless they would.

    Nor are tasks that all wait in TensorFlow: each task of a custom program may report after another number of steps.
    """
    history = case.history
    leading = [task for task in _running(case) if task in case.job.leading]
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
    return behind, f"{case.subject(behind)} behind (step {steps[behind[0]]}, {rest} {ahead})"


def _not_listening(case: Case, _: Stall) -> _Finding | None:
    """Tasks that do not accept connections yet, for which the others wait."""
    with_port = [plan.task.name for plan in case.job.plans if case.job.cluster.port(plan.task)]
    listening = {entry.task for entry in case.history.select(Listening)}
    missing = tuple(task for task in _running(case) if task in with_port and task not in listening)
    if not missing or len(missing) == len(with_port):
        return None
    listens = "does not listen on its port" if len(missing) == 1 else "do not listen on their ports"
    return missing, f"{listed([f'{task}{case.place(task)}' for task in missing])} {listens} yet"


def _busy(case: Case, stall: Stall) -> _Finding | None:
    """One task that computes while the others are idle. With GPUs, NCCL may use the cores of those that wait."""
    used: Mapping[str, float] = stall.cores_used
    busy = tuple(task for task, cores in used.items() if cores >= BUSY_CORES)
    idle = [task for task, cores in used.items() if cores <= IDLE_CORES]
    gpus = any(plan.program.env.get("CUDA_VISIBLE_DEVICES", NO_GPUS) != NO_GPUS for plan in case.job.plans)
    if len(busy) != 1 or not idle or len(busy) + len(idle) < len(used) or gpus:
        return None
    return busy, f"{case.subject(busy)} busy ({used[busy[0]]:.1f} cores), {shortened(idle)} idle"
