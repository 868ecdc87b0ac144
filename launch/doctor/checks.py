"""The doctor: what was found, judged. Pure: findings in, rows out. While one has failed, no job could start.

`fitness.py` has what concerns one host, `ways.py` the ways between them; here are the rest, and the order.
"""

from collections.abc import Iterator

from tfdist.launch.doctor.host_checks import CHECKS, unreached
from tfdist.launch.doctor.link_checks import link_rows, reach_rows
from tfdist.launch.doctor.preflight import SAME, SLOWEST, told, versions_by_host
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict
from tfdist.launch.place import FOR_WORKERS

EVERYWHERE = "all hosts"


def examine(findings: Survey) -> tuple[CheckResult, ...]:
    """Every row, in the order in which a launch would meet the checks."""
    rows = [*surroundings(findings)]
    rows += [unreached(findings, host) for host in findings.hosts if host not in findings.hellos]
    for check in CHECKS:
        rows += [row for host, hello in findings.hellos.items() for row in check(findings, host, hello)]
    rows += [*versions_differ(findings), *gpus_differ(findings)]
    return (*rows, *reach_rows(findings), *link_rows(findings))


def surroundings(findings: Survey) -> Iterator[CheckResult]:
    """The launcher's own environment."""
    if findings.tf_config:
        what = "TF_CONFIG is set here already, and it would contradict the one that every task gets"
        mend = "run 'unset TF_CONFIG', or run the one task that it describes with --inherit-tf-config"
        yield CheckResult("environment", "this machine", Verdict.FAILED, what, mend)


def versions_differ(findings: Survey) -> Iterator[CheckResult]:
    """What must be the same everywhere, and is not. That a package is missing is said elsewhere."""
    for what, found in versions_by_host(findings.hellos).items():
        there = {name: version for name, version in found.items() if version}
        if len(set(there.values())) > 1:
            check = "Python" if what == "python" else "packages"
            text = f"{what} is not the same everywhere: {told(there)}"
            yield CheckResult(check, EVERYWHERE, Verdict.FAILED, text, SAME)


def gpus_differ(findings: Survey) -> Iterator[CheckResult]:
    """Workers with GPUs and workers without make no job; unequal GPUs make a slow one."""
    workers = {host: hello for host, hello in findings.hellos.items() if host.role in FOR_WORKERS}
    shown = {host.name: tuple(hello["gpus"]) for host, hello in workers.items()}
    without = [name for name, names in shown.items() if not names]
    if without and len(without) < len(shown):
        text = f"{', '.join(without)} shows no GPU, and the others do: workers need all one or all none"
        yield CheckResult("GPUs", EVERYWHERE, Verdict.FAILED, text, "see its row, or --exclude it")
    elif len(set(shown.values())) > 1:
        text = f"the GPUs are not the same everywhere: {SLOWEST}"
        yield CheckResult(
            "GPUs", EVERYWHERE, Verdict.WARNING, text, "use hosts that are alike, or gpus= in the hostfile"
        )
