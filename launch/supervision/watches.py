"""Watches that notice failures in which nothing exits, and the barrier at which tasks wait for each other.

TensorFlow itself waits without a limit, or up to an hour, in silence.
"""

import ast
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Event, Exited, Listening, Output, Release, Reply, StacksDumped, Started
from tfdist.launch.cluster import Task, task_order
from tfdist.launch.diagnosis.history import Freeze, NotJoined, OwnConfig, ProcessState, Stall
from tfdist.launch.json_files import read_bytes
from tfdist.launch.supervision.task_group import TaskGroup
from tfdist.launch.text import shortened

CHECK_S = 2.0
"""Maximum seconds between two checks of a watch."""
PAUSE_S = 10.0
"""Pause between two checks above which the time starts again: a scheduler has suspended the launcher, and maybe
all tasks."""
FREEZE_CHECK_S = 2.5
"""Minimum seconds between two checks of the same process: each host answers one small request."""
CHECKED_PER_S = 100
"""Tasks whose processes are checked per second, at most."""
FROZEN_S = 10.0
"""A process that is stopped for this long counts as failed."""


@dataclass
class FrozenWatch:
    """Compares the states of processes from one check to the next. A process under a debugger (state t) is left alone.

    A job without a cluster is left alone, too: none of its tasks waits for another.
    """

    tasks: TaskGroup
    fail: Callable[[Freeze, float], None]
    """Called with a task that has failed, and the monotonic time."""
    checked_at: float = math.inf
    """Monotonic time of the last check; infinity before the first one."""
    since: dict[str, float] = field(default_factory=dict)
    """When each stopped process was first seen as such, in seconds since 1970."""

    def start(self, now: float) -> None:
        """Check from now on."""
        if self.tasks.job.cluster.addresses:
            self.tasks.deadlines[self.check] = now + self._interval_s

    def check(self, now: float) -> float | None:
        """Look at the answers to the last request, and ask again; returns when to check next."""
        if self.tasks.stopped:
            return None
        paused = now - self.checked_at > PAUSE_S + self._interval_s
        self.checked_at = now
        states = {task: self.tasks.history.states.get(task) for task in sorted(self.tasks.running)}
        stopped = {task: state.time for task, state in states.items() if state is not None and state.state == "T"}
        stopped = {} if paused else stopped
        self.since = {task: self.since.get(task, time) for task, time in stopped.items()}
        frozen = tuple(task for task, time in stopped.items() if time - self.since[task] >= FROZEN_S)
        if frozen:
            self.fail(Freeze(frozen), now)
        self.tasks.inspect()
        return now + self._interval_s

    @property
    def _interval_s(self) -> float:
        return max(FREEZE_CHECK_S, len(self.tasks.channels) / CHECKED_PER_S)


@dataclass
class Barrier:
    """Opens when all leading tasks that have not exited wait at it."""

    tasks: TaskGroup
    paced: bool
    """It opens only for a `NextTurn`."""
    stop: Callable[[str], None]
    """Stop all tasks, for this reason."""
    waiting: set[str] = field(default_factory=set)
    """Tasks that have reached it."""
    turns: int = 0
    """Number of turns so far."""

    def check(self) -> bool:
        """Open the barrier if no leading task is still to come; returns whether a turn has ended instead."""
        leading = self.tasks.job.leading
        if not self.waiting or len(self.waiting) + self.tasks.number_finished < len(leading):
            return False
        if not self.waiting | self.tasks.finished >= set(leading):
            return False
        if not self.paced:
            self._open({})
            return False
        if not self.tasks.finished:
            # the CPU time that the turn took, and, once the task has started, the memory that it takes
            self.tasks.inspect(gpus=not self.turns)
            return True
        if not self.tasks.stopped:  # no turn can follow: it would wait for this task
            early = min(self.tasks.finished)
            self.stop(f"{early} exited with code 0 while other tasks wait for a turn")
        return False

    def start_turn(self, turn: Mapping[str, Any] | None) -> None:
        """Let the tasks continue for a turn."""
        self.turns += 1
        self.tasks.inspect()
        self._open(turn)

    def _open(self, turn: Mapping[str, Any] | None) -> None:
        for attempt in sorted({self.tasks.attempt(task) for task in self.waiting}):
            for channel in dict.fromkeys(self.tasks.channels.values()):
                channel.send(Release(attempt, turn))
        self.waiting.clear()


QUIET_S = 5.0
"""A worker that wrote a line, or a step, so recently does not wait."""
IDLE_CPU = 0.1
"""Share of a core that a waiting process uses at most."""


LISTEN_S = 10.0
"""Time for the first task to listen on its port; importing TensorFlow takes 3 to 5 s on an idle machine."""


@dataclass
class JoinWatch:
    """Notices workers that wait for one that exited before it joined the cluster, and programs that set TF_CONFIG.

    Compares the processes of workers that may wait from one check to the next: one that trains uses its cores. A job
    whose tasks never listen on their ports builds no cluster, and is left alone.
    """

    tasks: TaskGroup
    fail: Callable[[NotJoined, float], None]
    """Called with the worker and those that wait for it, and the monotonic time."""
    missing: str = ""
    """The worker that exited with code 0 without having listened on its port."""
    seen: dict[str, ProcessState] = field(default_factory=dict)
    """The processes at the last check."""

    def check_config(self, _: float) -> None:
        """Say so if no task listens on its port and the program, which is read here, sets TF_CONFIG itself."""
        plan = self.tasks.job.plans[0]
        if not plan.script or not self.tasks.job.cluster.addresses or self._listening():
            return
        try:
            nodes = list(ast.walk(ast.parse(read_bytes(Path(plan.program.cwd, plan.script)))))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # it is on another host, or no program
            return
        tests = (node for node in nodes if isinstance(node, ast.If) and "TF_CONFIG" in ast.unparse(node.test))
        conditional = {inner for node in tests for inner in ast.walk(node)}
        assigned = [node for node in nodes if isinstance(node, ast.Assign) and node not in conditional]
        lines = [node.lineno for node in assigned if ast.unparse(node.targets[0]).endswith("environ['TF_CONFIG']")]
        if lines:
            what = f"no task listens on its port, and {plan.script}:{lines[0]} sets TF_CONFIG itself"
            own = OwnConfig(f"{what}: remove that line; tfdist sets TF_CONFIG for each task")
            self.tasks.history.entries.append(own)
            self.tasks.note(own.sentence)

    def note_exit(self, task: str, now: float) -> None:
        """Take note that a task exited with code 0: from some time later on, check whether others wait for it."""
        job, attempt = self.tasks.job, self.tasks.attempt(task)
        if self.missing or task not in job.leading or not job.cluster.port(Task(*task_order(task))):
            return
        if not self.tasks.history.has(Listening, task, attempt):
            self.missing = task
            self.tasks.deadlines[self.check] = now + max(0.0, self.tasks.policy.settle_secondary_s - 2 * CHECK_S)

    def check(self, now: float) -> float | None:
        """Compare the processes with those at the last check, and ask for them again; returns when to check next."""
        leaders, history = self.tasks.leaders, self.tasks.history
        listening = self._listening()
        time_now = event_time()

        def waits(task: str) -> bool:
            before = self.seen.get(task)
            state = history.states.get(task)
            if task not in listening or before is None or state is None or before is state:
                return False
            quiet = time_now - history.last_sign(task) >= QUIET_S
            return quiet and state.cpu_s - before.cpu_s <= IDLE_CPU * CHECK_S

        waiting = bool(leaders) and all(map(waits, leaders))
        self.seen = dict(history.states)
        if waiting:
            self.fail(NotJoined(self.missing, tuple(leaders)), now)
        self.tasks.inspect()
        return None if self.tasks.stopped else now + CHECK_S

    def _listening(self) -> set[str]:
        return {entry.task for entry in self.tasks.history.select(Listening)}


CPU_S = 2.0
"""Seconds over which the CPU time of the tasks' processes is compared."""
NO_STEP = "no step for"
"""The start of the warning."""
EVIDENCE_S = 25.0
"""Time for the stacks of all tasks; an agent needs 21 s at most."""
POLL_S = 0.2
"""Seconds between two checks whether the evidence is complete."""
SAVED = "the stacks of all tasks are saved in stacks.txt, beside their logs"
MOST_STEPS = 8
"""Tasks whose last step is in the warning."""


@dataclass
class StallWatch:
    """Notices a job that takes no more steps: warns, saves the stacks of all tasks, looks twice at their processes.

    Events of leading tasks are signs of life, before the first step their output is one too. In a job without steps any
    task's output is one, and its silence leads to one warning only; to none if the job is led elsewhere.
    """

    tasks: TaskGroup
    fail: Callable[[Stall, float], None]
    """Called with the stall, and the monotonic time."""
    took_steps: bool = False
    """The job has reported steps, maybe in an earlier attempt."""
    last_sign: float = field(default_factory=time.monotonic)
    """Monotonic, as all times here but those in the history."""
    _last_check: float = -math.inf
    _suspected_at: float | None = None
    _before: dict[str, ProcessState] | None = None
    """The processes at the first look, once the second one is due."""
    _missing_stacks: set[str] = field(default_factory=set)
    """Tasks whose stacks were requested and have not arrived."""
    _warned: bool = False
    """Whether a job without steps was warned of."""

    def start(self, now: float) -> None:
        """Watch from now on, if the policy asks for it."""
        if self.tasks.policy.stall_timeout_s is not None:
            self.tasks.deadlines[self._check] = self._next_check(now)

    def note(self, message: Message, now: float) -> None:
        """Take note of a message about a present attempt: a sign of life ends a suspicion."""
        steps, leading = self.tasks.history.steps, self.tasks.job.leading
        is_sign = isinstance(message, Started | Exited)
        match message:
            case Event(task):
                is_sign = task in leading
            case Output(task, stream) if stream != "stacks":
                is_sign = not steps and (task in leading or not self._takes_steps)
        if not is_sign:
            return
        self.took_steps = self.took_steps or bool(steps)
        if self._suspected_at is not None and not isinstance(message, Exited):
            silence_s = now - self.last_sign
            self.tasks.note(f"the job continues after {silence_s:.0f} s without a step")
        self.restart(now)

    def restart(self, now: float) -> None:
        """Count the time from now on, and end a suspicion."""
        last_sign = self.last_sign if math.isfinite(self.last_sign) else now  # infinite since a stall was reported
        self.last_sign = max(now, last_sign)
        self._suspected_at = None
        self._before = None

    @property
    def _takes_steps(self) -> bool:
        return self.took_steps or self.tasks.job.reports_steps

    @property
    def _deadline(self) -> float:
        """When to look next; infinity if there is nothing to watch."""
        timeout_s = self.tasks.policy.stall_timeout_s
        watched = self._takes_steps or not (self._warned or self.tasks.job.led_elsewhere)
        if timeout_s is None or not watched:
            return math.inf
        if self._suspected_at is None:
            return self.last_sign + timeout_s
        return self._suspected_at + CPU_S if self._before is None else self._last_check + POLL_S

    def _next_check(self, now: float) -> float:
        return now + max(POLL_S, min(CHECK_S, self._deadline - now))

    def _check(self, now: float) -> float | None:
        if self.tasks.stopped:
            return None
        if not self.tasks.leaders:  # they wait for their start
            self.restart(now)
        if PAUSE_S < now - self._last_check < math.inf:
            self.last_sign = max(self.last_sign, now)
        due = self._deadline <= now
        self._last_check = now
        if due:
            self._look(now)
        return self._next_check(now)

    def _look(self, now: float) -> None:
        if self._suspected_at is None:
            self._suspect(now)
            return
        states, running = self.tasks.history.states, self.tasks.running
        if self._before is None:
            self._before = dict(states)
            self.tasks.inspect()
            return
        compared = all(states.get(task) is not self._before.get(task) for task in running)
        if (compared and not self._missing_stacks) or now >= self._suspected_at + EVIDENCE_S:
            cores_used = {}
            for task in sorted(running):
                first = self._before.get(task)
                last = states.get(task)
                if first is not None and last is not None and last.time > first.time:
                    cores_used[task] = (last.cpu_s - first.cpu_s) / (last.time - first.time)
            self.last_sign, self._suspected_at = math.inf, None
            self.fail(Stall(self.tasks.policy.stall_timeout_s or 0.0, cores_used), now)

    def _suspect(self, now: float) -> None:
        """Warn, save the stacks of all tasks, and look at their processes."""
        history, running, timeout_s = self.tasks.history, self.tasks.running, self.tasks.policy.stall_timeout_s
        if self._takes_steps:
            self._suspected_at = now
            texts = []
            for task in self.tasks.leaders:
                step, _ = history.steps.get(task, (0, 0.0))
                texts.append(f"{task} at step {step}" if step else f"{task} before its first step")
            warning = f"{NO_STEP} {timeout_s:g} s ({shortened(texts, MOST_STEPS)}); {SAVED}"
        else:
            self._warned = True
            why = "the job is not stopped, because it reports no steps"
            warning = f"no output or event for {timeout_s:g} s; {SAVED}; {why}"
        self.tasks.note(warning)
        self._missing_stacks = set(running)
        for task in running:
            history.stacks.pop(task, None)
        self.tasks.dump_stacks(self._note_stacks)
        self.tasks.inspect()

    def _note_stacks(self, reply: Reply) -> None:
        if isinstance(reply, StacksDumped):
            self._missing_stacks -= reply.methods.keys()
