"""The names of peers, looked up until all are known: a cluster's DNS may learn them after the tasks have started."""

import socket
import threading
from collections.abc import Callable, Mapping

RETRY_S = 0.5


def is_known(host: str) -> bool:
    """Whether the name or address of a host can be resolved on this machine."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):  # UnicodeError: not a valid DNS name
        return False
    return True


class NameSearch:
    """Looks for the hosts of tasks, in one thread; others may ask what is missing."""

    def __init__(self, hosts: Mapping[str, str], is_known: Callable[[str], bool] = is_known) -> None:
        """Look for these hosts, by the name of the task."""
        self._missing, self._is_known = dict(hosts), is_known

    @property
    def missing(self) -> Mapping[str, str]:
        """The hosts that are not known yet, by task."""
        return self._missing

    def run(self, stop: threading.Event, report: Callable[[Mapping[str, str]], None] = lambda _: None) -> bool:
        """Look until all are known or `stop` is set; returns whether all are known. `report` gets the missing ones."""
        while not stop.is_set():
            self._missing = {task: host for task, host in self._missing.items() if not self._is_known(host)}
            if not self._missing:
                return True
            report(self._missing)
            stop.wait(RETRY_S)
        return False
