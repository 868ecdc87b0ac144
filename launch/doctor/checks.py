"""All checks of a survey, in the order in which a launch would fail on them. Pure."""

from collections.abc import Iterator

from tfdist.launch.doctor.host_checks import CHECKS
from tfdist.launch.doctor.link_checks import link_rows, reachability_rows
from tfdist.launch.doctor.problems import ALL_HOSTS, SLOWEST, gpu_models, version_problems
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict
from tfdist.launch.text import shortened


def run_checks(survey: Survey) -> tuple[CheckResult, ...]:
    """A row for each check of each host, of all hosts together, and of the links between them."""
    rows = [*_environment(survey)]
    for host in survey.hosts:
        if host not in survey.hellos:
            problem = survey.lost[host]
            rows.append(CheckResult("connection", host.name, Verdict.FAILED, problem.what, problem.fix))
    for name, check in CHECKS.items():
        for host, hello in survey.hellos.items():
            finding = check(survey, host, hello)
            if finding is not None:
                rows.append(CheckResult(name, host.name, *finding))
    return (*rows, *_versions(survey), *_gpus(survey), *reachability_rows(survey), *link_rows(survey))


def _environment(survey: Survey) -> Iterator[CheckResult]:
    if survey.tf_config:
        text = "TF_CONFIG is already set, and would contradict the one that every task gets"
        fix = "run 'unset TF_CONFIG', or run the one task that it describes with --inherit tf-config"
        yield CheckResult("environment", "this machine", Verdict.FAILED, text, fix)


def _versions(survey: Survey) -> Iterator[CheckResult]:
    for name, problem in version_problems(survey.hellos, ignore_missing=True).items():
        check = "Python" if name == "Python" else "packages"
        yield CheckResult(check, ALL_HOSTS, Verdict.FAILED, problem.what, problem.fix)


def _gpus(survey: Survey) -> Iterator[CheckResult]:
    models = {host.name: names for host, names in gpu_models(survey.hellos).items()}
    without = [host for host, names in models.items() if not names]
    if without and len(without) < len(models):
        text = f"no GPU on {shortened(without)}, but on the others: workers need GPUs on all hosts or on none"
        yield CheckResult("GPUs", ALL_HOSTS, Verdict.FAILED, text, "see the row of that host, or --exclude it")
    elif len(set(models.values())) > 1:
        text = f"the GPUs differ between hosts: {SLOWEST}"
        fix = "use hosts with the same GPUs, or select GPUs with gpus= in the hostfile"
        yield CheckResult("GPUs", ALL_HOSTS, Verdict.WARNING, text, fix)
