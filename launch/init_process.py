"""What a process has to do as PID 1 of a container, where the kernel treats it differently."""

import os
import signal
from contextlib import suppress

from tfdist.launch.agent_program.processes import children
from tfdist.launch.agent_program.system import process_stat


def act_as_init() -> None:
    """End on SIGTERM and SIGHUP, which have no default action for PID 1, with 128 + N; and reap orphans.

    Who handles these signals otherwise may replace the handlers.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: os._exit(128 + number))
    signal.signal(signal.SIGCHLD, lambda *_: reap_orphans())


def reap_orphans() -> None:
    """Reap the processes that others have left to this one, as the guards of agents, once they have ended.

    Never a child that we have started, for whose status somebody may wait: such a child is in our session or leads its
    own. So an orphan that leads a session stays a zombie until we exit.
    """
    with suppress(OSError):  # no descriptor is left: a handler of a signal would raise that anywhere
        for pid in children():
            state, _, _, session = (process_stat(pid) or ["", "", "", "0"])[:4]
            if state == "Z" and int(session) not in (pid, os.getsid(0)):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
