"""The jobs of the scenarios, and the arguments of `tfdist launch` for them."""

import sys
from dataclasses import replace

from lab.faults.sandbox import PROGRAMS, Sandbox
from lab.faults.scenario import SAVED, Job, Scenario

PACE_S = 0.05
"""Pause after each window of 5 steps."""
TINY = (
    "--preset", "smoke", "--model", "tiny", "--dataset", "digits", "--set", "evaluate=false",
    "--set", "steps_per_window=5", "--set", "warmup_steps=5",
)  # fmt: skip
_WORKERS = ("--strategy", "multiworker", "--workers", "2")
_PS = ("--strategy", "parameter-server", "--workers", "2", "--ps", "1")
_STEPS = (sys.executable, str(PROGRAMS / "steps.py"), "{steps}")

ONE_DEVICE = Job("one-device", ("--strategy", "one-device", *TINY))
MIRRORED = Job("mirrored", ("--strategy", "mirrored", "--devices", "2", *TINY))
MULTIWORKER = Job("multiworker", (*_WORKERS, *TINY))
PARAMETER_SERVER = Job("parameter-server", (*_PS, *TINY))
PLAIN = Job("plain", _WORKERS, program=_STEPS)
"""A program without TensorFlow, where that would change nothing."""
OWN = Job("own-program", _WORKERS, program=(sys.executable, str(PROGRAMS / "loop.py"), "8"))
"""A user's own program that calls `current()`."""
COPIED = Job("copied", (*_WORKERS, "--copy", str(PROGRAMS)), program=(sys.executable, "steps.py", "{steps}"))
"""The same as `plain`, in a copy of the program's folder."""
FUNCTION = Job("function", _WORKERS, program=("{steps}",), caller="run_function.py")
"""A function of a program that calls `tfdist.run`."""
OWN_PLAIN = Job("own-program-plain", _WORKERS, program=(sys.executable, str(PROGRAMS / "loop.py"), "8", "plain"))
MULTIWORKER_HOSTS = Job("multiworker-hosts", ("--strategy", "multiworker", *TINY), hosts=("h1", "h2"))
MULTIWORKER_3_HOSTS = Job("multiworker-3-hosts", ("--strategy", "multiworker", *TINY), hosts=("h1", "h2", "h3"))
PARAMETER_SERVER_HOSTS = Job(
    "parameter-server-hosts", ("--strategy", "parameter-server", "--ps", "1", *TINY), hosts=("h1", "h2")
)
"""Chief, ps and worker-0 on h1, worker-1 on h2."""
PLAIN_HOSTS = Job("plain-hosts", ("--strategy", "multiworker"), hosts=("h1", "h2"), program=_STEPS)
COPIED_HOSTS = replace(
    COPIED, name="copied-hosts", options=("--strategy", "multiworker", *COPIED.options[-2:]), hosts=("h1", "h2")
)
FUNCTION_HOSTS = replace(FUNCTION, name="function-hosts", options=("--strategy", "multiworker"), hosts=("h1", "h2"))
PLAIN_3_HOSTS = Job("plain-3-hosts", ("--strategy", "multiworker"), hosts=("h1", "h2", "h3"), program=_STEPS)


def arguments(scenario: Scenario, box: Sandbox, prepared: tuple[str, ...]) -> list[str]:
    """The arguments of the launch; `prepared` are those that the fault's preparation needs."""
    job = scenario.job
    options = [*job.options, *environment(box, PACE_S), *prepared, *scenario.options]
    if job.hosts:
        options += ["--hosts", ",".join(job.hosts), "--ssh", str(box.network.ssh)]
        if "--remote-prefix" not in options:
            options += ["--remote-prefix", f"export TMPDIR={box.temporary} &&"]
    if scenario.restarts:
        options += ["--max-restarts", str(scenario.restarts)]
        options += () if job.program else SAVED
    options = [word.replace("{checkpoints}", str(box.checkpoints)) for word in options]
    if not job.program:
        return [*options, "--steps", str(scenario.steps)]
    return [*options, "--", *(word.replace("{steps}", str(scenario.steps)) for word in job.program)]


def environment(box: Sandbox, pace_s: float) -> list[str]:
    """Options for tasks that obey orders, and pause for `pace_s` seconds after each window."""
    values = {"PYTHONPATH": PROGRAMS, "TFDIST_FAULTS": box.orders, "TFDIST_FAULTS_PACE": pace_s}
    return [word for name, value in values.items() for word in ("--env", f"{name}={value}")]
