"""A CollectiveSpec -> the processes of its job. No TensorFlow."""

from collections.abc import Mapping
from pathlib import Path

from tfdist.launch.job import Job, Program
from tfdist.launch.machine import Machines
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.plan import plan_command

_COMMAND = ("-m", "tfdist.models.collectives.task")


def plan_collective(spec: CollectiveSpec, machines: Machines, env: Mapping[str, str]) -> Job:
    """The measurement as a job; its tasks also get the variables of `env`.

    Raises:
        TfdistError: the tasks do not fit on the hosts.
    """
    # PYTHONSAFEPATH: the working directory may contain a random.py
    program = Program(_COMMAND, {**env, "PYTHONSAFEPATH": "1"}, str(Path.cwd()), python=True)
    return plan_command(spec, program, machines)
