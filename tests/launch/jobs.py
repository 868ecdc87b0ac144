"""Small real jobs for the tests of this folder."""

import os
import sys
from pathlib import Path

from tfdist.launch.agent_program.template import module_command
from tfdist.launch.agents.inbox import Message, Note, OnMessage
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.job import Job, Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.run_tasks import launch

FORKED = "TFDIST_TEST_FORKED"
QUICK = Policy(grace_s=1.0, settle_s=0.3, settle_secondary_s=1.0, launcher_timeout_s=8.0)


def roles(**counts: int) -> dict[str, RoleShape]:
    """A number of tasks for each role; only workers compute. With a chief, it leads and the others serve it.

    They are restarted as those of the strategies are, and the job waits for evaluators.
    """
    return {
        role: RoleShape(
            count,
            computes=role == "worker",
            leads=role == "chief" or (role == "worker" and "chief" not in counts),
            serves=role in ("worker", "ps") and "chief" in counts,
            restarts={"worker": () if "chief" in counts else ("worker",), "ps": ("chief", "ps")}.get(role, ()),
            follows=role == "evaluator",
        )
        for role, count in counts.items()
    }


def python_job(code: str, counts: dict[str, int], *, cluster: bool = True) -> Job:
    """A job on localhost whose tasks all run this Python code, forked from a template if FORKED is set."""
    program = Program((sys.executable, "-S", "-c", code), {}, "/")
    if FORKED in os.environ:
        module = "tests.launch.forked_program"
        env = {"TFDIST_TEST_CODE": code, "PYTHONPATH": str(Path(__file__).parents[2])}
        program = Program(module_command(module), env, "/", python=True, preload=module)
    return plan_job(Shape(roles(**counts), has_cluster=cluster), program, local_machines())


class Messages(list[Message]):
    """The messages of a launch, in order of arrival."""

    def of(self, kind: type) -> list[Message]:
        return [message for message in self if isinstance(message, kind)]


def run(
    job: Job, folder: Path, policy: Policy = QUICK, on_message: OnMessage = lambda _: None
) -> tuple[Outcome, Messages]:
    """Launch a job; its outcome and messages, of which `on_message` receives each."""
    messages = Messages()

    def receive(message: Message) -> None:
        messages.append(message)
        on_message(message)

    folder.mkdir(parents=True, exist_ok=True)
    with RunWriter(RunDir(folder)) as writer:
        outcome = launch(job, writer, policy, {"test": receive})
    assert not [note.text for note in messages.of(Note) if "Please report this" in note.text]
    return outcome, messages
