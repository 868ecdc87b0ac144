"""What a command line asks to be run, completely planned and checked: nothing has been started yet."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfdist.cli.options import OF_A_STRATEGY, RENAMED, flag_of, twin
from tfdist.launch.cluster import parse_tf_config
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Job, Program
from tfdist.launch.machine import Machine, Machines, combined, local_machines
from tfdist.models.plan import only_task, plan_command, plan_training
from tfdist.models.presets import resolve, resolve_strategy
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import LEGACY_KERAS


@dataclass(frozen=True)
class PlannedLaunch:
    """A job, and what there is to say about it beforehand."""

    job: Job
    spec: StrategyChoice
    """A TrainingSpec for the built-in training."""
    argv: tuple[str, ...]
    """The user's own program; empty for the built-in training."""
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class LaunchOptions:
    """The command line, apart from how a run is shown."""

    choices: Mapping[str, Any]
    """Of the training, by TrainingSpec's field names, and `preset`."""
    command: tuple[str, ...] = ()
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Forwarded to every task."""
    inherit_tf_config: bool = False
    """Run the one task that TF_CONFIG in the environment describes."""

    @property
    def devices(self) -> int:
        """Of each task; 1 where the user does not say."""
        return max(1, int(self.choices.get("devices", 1)))


def plan_request(asked: LaunchOptions, machines: Machines) -> PlannedLaunch:
    """The planned job.

    Raises:
        TfdistError: anything that is wrong with the command line, in one sentence.
    """
    return plan_inherited(asked, machines) if asked.inherit_tf_config else plan_own(asked, machines)


def plan_own(asked: LaunchOptions, machines: Machines) -> PlannedLaunch:
    """A job whose cluster is ours."""
    choices, machine = with_servers(asked.choices, machines), combined(machines)
    if not asked.command:
        if LEGACY_KERAS in asked.env:
            raise TfdistError(
                f"--env {LEGACY_KERAS}={asked.env[LEGACY_KERAS]}: say --keras 2 or --keras 3 to the built-in training"
            )
        resolved = resolve({**choices, "preset": None}, machine, choices.get("preset"))
        job = plan_training(resolved.spec, machines, asked.port, asked.env)
        return PlannedLaunch(job, resolved.spec, (), resolved.notes, resolved.warnings)
    refuse_training_options(choices)
    own_keras = (
        {LEGACY_KERAS: os.environ[LEGACY_KERAS]} if LEGACY_KERAS in os.environ and "keras" not in choices else {}
    )
    elsewhere = any(host.chdir or not host.local for host in machines)
    program = find_program(asked.command, {**own_keras, **asked.env}, elsewhere)
    own = resolve_strategy(choices, machine)
    job = plan_command(own.spec, program, machines, asked.port)
    return PlannedLaunch(job, own.spec, asked.command, own.notes, own.warnings)


def with_servers(choices: Mapping[str, Any], machines: Machines) -> Mapping[str, Any]:
    """The choices, with as many parameter servers as hosts with role=ps take, if the user does not say."""
    servers = sum(machine.slots or 1 for host, machine in machines.items() if host.role == "ps")
    return {"ps": servers, **choices} if servers else choices


def plan_inherited(asked: LaunchOptions, machines: Machines) -> PlannedLaunch:
    """The one task that TF_CONFIG in the environment describes; a scheduler starts the others elsewhere."""
    choices, command, port = asked.choices, asked.command, asked.port
    if any(host != LOCAL for host in machines):
        raise TfdistError("--inherit-tf-config runs one task, on this machine: leave --hosts and --hostfile away")
    machine = machines[LOCAL]
    text = os.environ.get("TF_CONFIG")
    if text is None:
        raise TfdistError(
            "--inherit-tf-config, but TF_CONFIG is not in the environment: set it, or leave the option away"
        )
    if port is not None:
        raise TfdistError(f"--port {port}: TF_CONFIG in the environment has the ports already; leave --port away")
    cluster, task = parse_tf_config(text)
    workers = len(cluster.addresses.get("worker", ()))
    ps = len(cluster.addresses.get("ps", ()))
    if not ps:
        workers += len(cluster.addresses.get("chief", ()))
    found: dict[str, Any] = {"strategy": "parameter-server" if ps else "multiworker", "workers": workers}
    found |= {"ps": ps} if ps else {}
    for name, value in found.items():
        given = choices.get(name, value)
        if str(given) not in (str(value), "auto"):
            raise TfdistError(f"--{name} {given}, but TF_CONFIG in the environment says {value}: leave --{name} away")
    asked = replace(asked, choices={**choices, **found})
    request = plan_own(asked, local_machines(replace_gpus(machine, workers)))
    if "chief" in cluster.addresses and not ps and not command:
        raise TfdistError("TF_CONFIG has a chief and no ps: the built-in training calls that one worker 0; rename it")
    if task.role not in {"chief", *(plan.task.role for plan in request.job.plans)}:
        raise TfdistError(
            f"TF_CONFIG's task is a {task.role}, which {request.spec.strategy} has none of: name it worker in TF_CONFIG"
        )
    notes = (*request.notes, f"this task, from TF_CONFIG: {task.role} {task.index}")
    return replace(request, job=only_task(request.job, cluster, task), notes=notes)


def replace_gpus(machine: Machine, workers: int) -> Machine:
    """A machine with as many GPUs as all workers of the cluster would have if each has what this one has."""
    return replace(machine, gpus=machine.gpus * workers, gpu_ids=machine.gpu_ids * workers)


def refuse_training_options(choices: Mapping[str, Any]) -> None:
    """Options of the built-in training mean nothing to the user's own program."""
    known = {RENAMED.get(name, name) for name in OF_A_STRATEGY}
    stray = sorted(set(choices) - known)
    if stray:
        given = twin(stray[0]) if twin(stray[0]) in os.environ else flag_of(stray[0])
        raise TfdistError(
            f"{given} {choices[stray[0]]} is for the built-in training, and a COMMAND of your own was given: "
            f"leave it away, or write it behind your program if it is your program's"
        )


def find_program(command: Sequence[str], env: Mapping[str, str], elsewhere: bool) -> Program:
    """The user's command. `python`, and a bare script, mean the Python that runs tfdist, or the other host's.

    Raises:
        TfdistError: there is no such program or script here; of other hosts and folders (`elsewhere`) we do not know.
    """
    program, *arguments = command
    script = program if program.endswith(".py") else ""
    if program in ("python", "python3"):
        script = arguments[0] if arguments and arguments[0].endswith(".py") else ""
        if script and not elsewhere:
            must_exist(script)
        return Program(tuple(arguments), env, str(Path.cwd()), python=True)
    found = shutil.which(program) is not None
    if script and (Path(program).is_file() or not found):
        if not elsewhere:
            must_exist(program)
        return Program(tuple(command), env, str(Path.cwd()), python=True)
    if not found and not elsewhere:
        if Path(program).is_file():
            raise TfdistError(f"the program {program!r} is not executable: chmod +x it, or name what runs it")
        raise TfdistError(f"the program {program!r} is not found: give its path, or install it")
    return Program(tuple(command), env, str(Path.cwd()))


def must_exist(script: str) -> None:
    """A script that is not there would only fail in every task."""
    if not Path(script).is_file():
        raise TfdistError(f"the script {script!r} is not in {str(Path.cwd())!r}: give its path")
