"""The windows of a loop that is not ours: generators, each `yield` of which lets the program train a step.

The program sends back the result of the step. No TensorFlow.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from tfdist.models.training.windows import WindowLog

Stepping = Generator[None, Any, None]


class ProgramLoop(Protocol):
    """The steps of a program, as `pace.Loop` turned inside out."""

    examples_per_step: int
    """That this task counts."""

    def windows(self, sizes: Iterable[int], log: WindowLog, before: int = 0, after: int = 0) -> Stepping:
        """Let the program train `before` steps, windows of these sizes in steps, each logged, and `after` steps."""


@dataclass
class SyncWindows:
    """Each step follows the last one. At a window's end the task waits for its devices."""

    examples_per_step: int
    wait: Callable[[], None]
    loss: Callable[[Any], float | None] = lambda result: None
    """The loss in the result of a window's last step."""

    def windows(self, sizes: Iterable[int], log: WindowLog, before: int = 0, after: int = 0) -> Stepping:
        """`ProgramLoop.windows`."""
        yield from _run(before)
        self.wait()
        log.open()
        for size in sizes:
            result = yield from _run(size)
            loss = self.loss(result)
            self.wait()
            log.first_step()
            log.close(size, size * self.examples_per_step, loss)
        yield from _run(after)
        self.wait()


def _run(steps: int) -> Generator[None, Any, Any]:
    """Let the program train steps; returns the result of the last one."""
    result = None
    for _ in range(steps):
        result = yield
    return result


@dataclass
class AsyncWindows:
    """Steps are scheduled on workers, and a step's result is a RemoteValue.

    A window's edge is the moment at which a step is done. It is waited for only when `ahead` more steps have been
    scheduled, so that workers have work at the edge. Steps are done in their order, except for those that other workers
    are at; their number is about the same at every edge.
    """

    examples_per_step: int
    ahead: int
    drain: Callable[[], None]
    loss: Callable[[Any], float | None] = lambda result: None
    """The loss in the fetched result of a window's last step."""

    def windows(self, sizes: Iterable[int], log: WindowLog, before: int = 0, after: int = 0) -> Stepping:
        """`ProgramLoop.windows`."""
        edges: deque[_Edge] = deque()
        scheduled = 0
        if not before:
            log.open()
        for steps, counted in chain([(before, 0)], ((size, size) for size in sizes), [(after, None)]):
            result = None
            for _ in range(steps):
                result = yield
                scheduled += 1
                while edges and scheduled - edges[0].scheduled >= self.ahead:
                    self._pass(edges.popleft(), log)
            if steps and counted is not None:
                edges.append(_Edge(scheduled, counted, result))
        for edge in edges:
            self._pass(edge, log)
        self.drain()

    def _pass(self, edge: "_Edge", log: WindowLog) -> None:
        """Wait for an edge; it ends a window, or starts the first one."""
        result = edge.result.fetch()
        if not edge.steps:
            log.open()
            return
        log.first_step()
        log.close(edge.steps, edge.steps * self.examples_per_step, self.loss(result))


@dataclass(frozen=True)
class _Edge:
    scheduled: int
    """Steps so far."""
    steps: int
    """Steps of the window that ends here; 0: the first window starts here."""
    result: Any
    """The RemoteValue of the last step."""
