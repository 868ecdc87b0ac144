"""Plans the job of `tfdist launch` again on the hosts that answer, between --min-workers and --workers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfdist.jobs.choice import effect
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.request import Size
from tfdist.launch.doctor.problems import Hellos
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.machine import FOR_WORKERS, Machine, Machines, assign_slots, machines_of
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.rejoin import NextPlan
from tfdist.launch.supervision.restarts import SavedState
from tfdist.launch.text import counted, shortened
from tfdist.strategies.choice import StrategyChoice


@dataclass
class ElasticHosts:
    """The hosts of a job whose number of workers may change from attempt to attempt."""

    current: Planned
    """The plan of the last attempt."""
    wanted: Callable[[], Sequence[Host]]
    """The hosts that the job may use now, called in a thread. Raises a TfdistError if the hostfile is wrong."""
    per_host: int | None
    """--workers-per-host."""
    least: int
    """--min-workers."""
    most: int | None = None
    """--workers; None: as many as there are slots."""

    def __post_init__(self) -> None:
        self.first = self.current.spec
        self._job: Job | None = None
        self._before = self.current
        """The plan of `_job`, the attempt that has ended."""

    @property
    def planned(self) -> tuple[Job, StrategyChoice]:
        """The last plan and its spec."""
        return self.current.job, self.current.spec

    def plan(self, job: Job, hellos: Hellos, saved: SavedState) -> NextPlan:
        """The job of the next attempt, as `HostChoice.plan`.

        Raises:
            TfdistError: the hosts are too few.
        """
        if job is not self._job:
            self._job, self._before = job, self.current
        old = self._before
        machines, workers, ps = self._chosen(self._machines(hellos))
        if workers < self.least:
            names = shortened(host.name for host in machines)
            fit = f"{counted(workers, 'worker')} {'fits' if workers == 1 else 'fit'} on {names}"
            what = fit if workers else "no host for workers is left"
            raise TfdistError(f"{what}, but --min-workers is {self.least}", ExitCode.HOST_LOST)
        if set(machines) == set(job.hosts) and (workers, ps) == (old.spec.workers, old.spec.ps):
            self.current = old
            return NextPlan(job)
        self.current = new = plan(replace(old.request, size=Size(workers, ps, saved)), machines, before=old)
        note = _counts(old.spec, new.spec) + _reason(job.hosts, new.job.hosts, hellos)
        return NextPlan(new.job, ": ".join(filter(None, (note, effect(old.spec, new.spec, saved)))))

    def _machines(self, hellos: Hellos) -> Machines:
        """The machines that can run tasks of this job; a host may have come back without its GPUs."""
        machines: dict[Host, Machine] = {}
        for host, hello in hellos.items():
            try:
                found = assign_slots(machines_of({host: hello}), self.per_host, self.first.devices)
            except TfdistError:
                continue
            ((host, machine),) = found.items()
            if host.role not in FOR_WORKERS or not self.first.gpus or len(machine.gpus) >= self.first.devices:
                machines[host] = machine
        return machines

    def _chosen(self, machines: Machines) -> tuple[Machines, int, int]:
        """The machines that get tasks, in order, and the numbers of workers and of parameter servers on them."""
        limits = {"worker": self.most, "ps": self.first.ps}
        taken = dict.fromkeys(limits, 0)
        chosen = {}
        for host, machine in machines.items():
            role = host.role or "worker"
            limit = limits.get(role)
            if limit is None or taken[role] < limit:
                chosen[host] = machine
                if role in taken:
                    taken[role] += machine.slots or 1
        workers = taken["worker"] if self.most is None else min(taken["worker"], self.most)
        return chosen, workers, min(taken["ps"], self.first.ps) or self.first.ps


def elastic_hosts(planned: Planned, selection: HostSelection, policy: Policy) -> ElasticHosts | None:
    """The hosts of a planned job; None without --min-workers."""
    if policy.min_workers is None:
        return None
    changes = selection.changes(planned.spec.devices)
    most = planned.request.choices.get("workers")
    return ElasticHosts(planned, changes, selection.per_host, policy.min_workers, most)


def _counts(old: StrategyChoice, new: StrategyChoice) -> str:
    pairs = (("worker", new.workers, old.workers), ("parameter server", new.ps, old.ps))
    changed = [f"{counted(now, name)} instead of {before}" for name, now, before in pairs if now != before]
    return ", ".join(changed) or counted(new.workers, "worker")


def _reason(before: Sequence[Host], now: Sequence[Host], answering: Mapping[Host, object]) -> str:
    known, used = set(before), set(now)
    lost = [host.name for host in before if host not in used and host not in answering]
    new = [host.name for host in now if host not in known]
    parts = [f"{word} {shortened(names)}" for word, names in (("lost", lost), ("with", new)) if names]
    return f" ({', '.join(parts)})" if parts else ""
