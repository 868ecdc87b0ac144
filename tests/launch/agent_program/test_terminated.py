"""An agent under a scheduler that sends SIGTERM to all processes of a job, and SIGKILL some time later."""

import os
import signal
import time

import pytest

from tfdist.launch.agents.messages import Configure, Finish, Leaving, Terminated

from .real_agent import real_agent

SAVES = (
    "import signal, sys, time\n"
    "def save(*_): time.sleep(0.5); print('saved', flush=True); sys.exit(42)\n"
    "signal.signal(15, save)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)


def terminate(agent):
    """As a scheduler does: the agent and its parent, and the agent's parent forwards it."""
    for pid in (agent.process.pid, agent.pid()):
        os.kill(pid, signal.SIGTERM)


def test_it_tells_the_launcher_once_and_serves_on(survivors):
    with real_agent(grace_s=0.1) as agent:
        agent.send(Configure(0.1, 60.0, 60.0))
        agent.start(SAVES)
        agent.wait_for_text("ready")
        terminate(agent)
        agent.wait_for(Terminated)
        os.kill(agent.pid_of("worker-0"), signal.SIGTERM)  # a scheduler does that, too
        assert agent.exit_of("worker-0").code == 42
        assert agent.text() == "ready\nsaved\n"
        agent.start("print('again')", "worker-1")
        assert agent.exit_of("worker-1").code == 0
        agent.send(Finish())
        agent.reader.join(30)
        assert (len(agent.of(Terminated)), agent.of(Leaving)) == (1, [])
    assert survivors() == []


def test_it_leaves_when_the_scheduler_should_have_killed_it(survivors):
    with real_agent(grace_s=0.1) as agent:
        agent.send(Configure(0.1, 60.0, 0.5))
        agent.start("import time; time.sleep(600)")
        agent.pid_of("worker-0")
        started = time.monotonic()
        terminate(agent)
        assert agent.exit_of("worker-0").code == -signal.SIGTERM
        assert 0.4 < time.monotonic() - started < 10.0
        assert agent.wait_for(Leaving) == Leaving("received SIGTERM")
        agent.reader.join(30)
    assert survivors() == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_other_signals_end_it_at_once(number):
    with real_agent(grace_s=0.1) as agent:
        agent.send(Configure(0.1, 60.0, 60.0))
        os.kill(agent.pid(), number)
        assert agent.wait_for(Leaving) == Leaving(f"received {number.name}")
        assert agent.of(Terminated) == []


def test_the_death_of_its_parent_is_not_taken_for_a_scheduler_that_ends_the_job(survivors):
    with real_agent(grace_s=0.1) as agent:
        agent.send(Configure(0.1, 60.0, 60.0))
        agent.start("import time; time.sleep(600)")
        agent.pid_of("worker-0")
        os.kill(agent.process.pid, signal.SIGKILL)
        assert agent.wait_for(Leaving) == Leaving("its parent process was killed")
        agent.reader.join(30)
        assert agent.of(Terminated) == []
    assert survivors() == []


def test_it_ends_with_its_launcher(survivors):
    with real_agent(grace_s=0.1) as agent:
        agent.send(Configure(0.1, 60.0, 60.0))
        agent.start("import time; time.sleep(600)")
        agent.pid_of("worker-0")
        terminate(agent)
        agent.wait_for(Terminated)
        assert agent.end() == 0
    assert survivors() == []
