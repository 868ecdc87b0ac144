"""Connects hosts that a running job has lost, and hosts that are new, without disturbing the job."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tfdist.launch.agents.channel import CLEAN_UP_S, Channel, heartbeats
from tfdist.launch.agents.connect import close_all, connect_more
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import HostReady, Inbox, Interrupted, Note
from tfdist.launch.agents.messages import AgentEnded, EndAgent
from tfdist.launch.doctor.problems import Hellos
from tfdist.launch.errors import ExitCode, Problem, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.supervision.restarts import SavedState
from tfdist.launch.text import shortened
from tfdist.launch.threads import start_thread


@dataclass(frozen=True)
class NextPlan:
    """A job for the next attempt."""

    job: Job
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


class HostChoice(Protocol):
    """Decides which hosts a job may use, and plans it again on those that answer."""

    def wanted(self) -> Sequence[Host]:
        """The hosts that the job may use now. Called in a thread.

        Raises:
            TfdistError: the hosts have changed, but the change is wrong.
        """

    def plan(self, job: Job, hellos: Hellos, saved: SavedState) -> NextPlan:
        """The job of the next attempt; the same object as `job` if nothing changes.

        Args:
            job: of the attempt that has ended.
            hellos: the hosts that answer.
            saved: the checkpoint that it continues from.

        Raises:
            TfdistError: the hosts are too few.
        """


@dataclass(frozen=True)
class SameHosts:
    """All hosts of the job are needed."""

    hosts: tuple[Host, ...]

    def wanted(self) -> Sequence[Host]:
        """The hosts of the job."""
        return self.hosts

    def plan(self, job: Job, hellos: Hellos, saved: SavedState) -> NextPlan:
        """The same job.

        Raises:
            TfdistError: a host is missing.
        """
        missing = [host.name for host in job.hosts if host not in hellos]
        if missing:
            what = f"{shortened(missing)} is lost" if len(missing) == 1 else f"{shortened(missing)} are lost"
            raise TfdistError(f"{what}, and without --min-workers all hosts are needed", ExitCode.HOST_LOST)
        return NextPlan(job)


HURRY_S = 1.0
"""Longest time between two connections to a host that does not answer, while the job waits for it."""
ANSWER_S = 5.0
"""Time for the answer to `EndAgent`, in addition to its own time limit."""


class Rejoin:
    """Hosts that the job may use but does not, and a thread that connects them.

    The messages of their agents go to an inbox of the thread's own, so that the job sees none of them. Once a host has
    answered, and what an agent that was lost has left there is ended, the host is ready: the job's inbox gets
    `HostReady`. Its agent then waits without tasks until `take`.
    """

    def __init__(self, fleet: Fleet, wanted: Callable[[], Sequence[Host]]) -> None:
        """Prepare the thread; `start` starts it.

        Args:
            fleet: of the job.
            wanted: the hosts that the job may use now, or a TfdistError that becomes a `Note`. Called in the thread.
        """
        self._fleet, self._read = fleet, wanted
        self.wanted: tuple[Host, ...] = tuple(fleet.hellos)
        """The hosts that the job may use, as last read."""
        self._marks: dict[str, str] = {}
        """Marks of the agents that were lost, by host name."""
        self.channels: dict[Host, Channel] = {}
        """Channels of hosts that are ready or being connected."""
        self._ready: dict[Host, Mapping[str, Any]] = {}
        """Their descriptions."""
        self._reported: set[Note] = set()
        """Why hosts were not connected, each once."""
        self._inbox = Inbox()
        """What the thread waits for while it connects."""
        self._nowhere = Inbox()
        self._nowhere.close()
        self._changed = threading.Condition()
        self._hurried = self._closed = False
        self._thread: threading.Thread | None = None

    def lose(self, host: Host) -> None:
        """Remove a host from the fleet, as its agent is lost; connect it again when it answers."""
        if host in self._fleet.channels:
            self._marks[host.name] = self._fleet.channels[host].mark  # the thread may connect it from now on
        self._fleet.remove(host)

    def hurry(self, hurried: bool) -> None:
        """Connect now and every second, or in the usual interval again."""
        self.start()
        with self._changed:
            self._hurried = hurried
            self._changed.notify()

    def take(self) -> list[Host]:
        """Add the hosts that are ready to the fleet."""
        with self._changed:
            taken = [(host, hello) for host, hello in self._ready.items() if self._is_alive(host)]
            for host, hello in taken:
                del self._ready[host]
                self._fleet.add(self.channels.pop(host), hello)
        return [host for host, _ in taken if host not in self._fleet.lost]

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = start_thread(self._run, "rejoin")

    def close(self) -> None:
        """End the thread and its agents."""
        with self._changed:
            self._closed = True
            self._inbox.put(None, Interrupted(signal.SIGTERM))
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLEAN_UP_S)
        close_all(list(self.channels.values()), self._fleet.policy)

    def _is_alive(self, host: Host) -> bool:
        channel = self.channels[host]
        silent_s = 0.0 if host.local else time.monotonic() - channel.last_received
        return not channel.lost and silent_s < self._fleet.policy.silence_s

    def _run(self) -> None:
        try:
            self._connect_missing()
        except TfdistError as error:  # no thread for the heartbeats
            self._fleet.inbox.put(None, Note("tfdist", str(error)))

    def _connect_missing(self) -> None:
        with heartbeats(self.channels, self._fleet.policy.heartbeat_s):
            while True:
                with self._changed:
                    if not self._closed:
                        seconds = self._fleet.policy.rejoin_s
                        self._changed.wait(min(HURRY_S, seconds) if self._hurried else seconds)
                    if self._closed:
                        return
                try:
                    self.wanted = tuple(self._read())
                except TfdistError as error:
                    self._fleet.inbox.put(None, Note("tfdist", str(error)))
                with suppress(TfdistError):  # closed; or a transport that does not work now and may be fixed
                    self._connect(self._missing())

    def _missing(self) -> list[Host]:
        with self._changed:
            dead = [host for host in self._ready if not self._is_alive(host)]
            for host in dead:
                del self._ready[host]
        for host in dead:
            self._close(host)
        used = {host.name for host in (*list(self._fleet.channels), *list(self._ready))}
        return [host for host in self.wanted if host.name not in used]

    def _connect(self, hosts: Sequence[Host]) -> None:
        """Connect all of them, and keep those that have answered."""
        with self._changed:
            if self._closed:
                return
            self._inbox = Inbox()
        fleet = Fleet(self._inbox, self._fleet.policy, channels=self.channels)
        try:
            connect_more(fleet, hosts)
            self._end_predecessors(fleet)
        finally:
            for host in hosts:
                if host in fleet.hellos and host not in fleet.lost:
                    self.channels[host].deliver_to(self._nowhere)
                    with self._changed:
                        self._ready[host] = fleet.hellos[host]
                    self._fleet.inbox.put(None, HostReady(host.name))
                else:
                    self._close(host)
                    self._report(host, fleet.lost.get(host))

    def _report(self, host: Host, problem: Problem | None) -> None:
        """Say why a host was not connected, each reason once; None: the job has ended."""
        if problem is not None and (note := Note(host.name, problem.sentence)) not in self._reported:
            self._reported.add(note)
            self._fleet.inbox.put(None, note)

    def _end_predecessors(self, fleet: Fleet) -> None:
        seconds = fleet.policy.grace_s + CLEAN_UP_S
        requests = {
            host: EndAgent(self._marks[host.name], seconds) for host in fleet.hellos if host.name in self._marks
        }
        replies = fleet.ask(requests, "end the agent that was lost", seconds + ANSWER_S)
        for host, reply in replies.items():
            if isinstance(reply, AgentEnded) and reply.reason:
                fleet.lost[host] = Problem(reply.reason, "end it, or reboot the host", host.name)

    def _close(self, host: Host) -> None:
        channel = self.channels.pop(host, None)
        if channel is not None:
            channel.silent = True
            channel.close(0.0)
