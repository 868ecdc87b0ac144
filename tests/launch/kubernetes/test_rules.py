"""What the API server and JobSet's webhook check beyond the schemas, and what the controllers rely on.

Sources: validation.go of batch/v1 and core/v1, jobset_webhook.go, pod_failure_policy.go.
"""

import json
import re

import pytest

from tfdist.launch.kubernetes.manifest import manifest
from tfdist.launch.kubernetes.options import Kind

from .kubelet import action, failed_job, pods, with_jobset
from .workloads import MULTI_WORKER, PARAMETER_SERVER, options, workload

BOTH = [MULTI_WORKER, PARAMETER_SERVER]
IDS = ["multiworker", "parameter-server"]
REASONS = {
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"
}  # fmt: skip


def jobset(roles, kind=Kind.JOBSET, **values):
    return with_jobset(manifest(workload(roles, **values), options(kind=kind, pvc="data", gpus=2)))[-1]


def jobs(roles):
    """The specs of Jobs in manifests of all kinds."""
    for kind in (Kind.JOBSET, Kind.TRAINJOB):
        yield from (each["template"]["spec"] for each in jobset(roles, kind)["spec"]["replicatedJobs"])
    if roles is MULTI_WORKER:
        yield manifest(workload(roles), options(kind=Kind.JOB))[-1]["spec"]


@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_a_job_fails_with_its_first_pod_which_is_not_restarted_alone(roles):
    for job in jobs(roles):
        assert (job["completionMode"], job["completions"]) == ("Indexed", job["parallelism"])
        assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")
        assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy needs it


@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_each_pod_failure_rule_has_one_requirement_that_names_an_existing_container(roles):
    for job in jobs(roles):
        containers = {each["name"] for each in job["template"]["spec"]["containers"]}
        for rule in job["podFailurePolicy"]["rules"]:
            assert len({"onExitCodes", "onPodConditions"} & set(rule)) == 1
            codes = rule.get("onExitCodes")
            assert codes is None or (codes["containerName"] in containers and 0 not in codes["values"])


@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_variables_and_volumes_of_a_pod_fit_together(roles):
    for job in jobs(roles):
        spec = job["template"]["spec"]
        (container,) = spec["containers"]
        names = [each["name"] for each in container["env"]]
        assert len(names) == len(set(names))
        for position, each in enumerate(container["env"]):
            assert set(re.findall(r"\$\((\w+)\)", each.get("value", ""))) <= set(names[:position])
        assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= set(names)
        mounted = [each["name"] for each in container.get("volumeMounts", ())]
        assert mounted == [each["name"] for each in spec.get("volumes", ())]


@pytest.mark.parametrize("kind", [Kind.JOBSET, Kind.TRAINJOB])
@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_the_policies_of_a_jobset_refer_to_what_exists(roles, kind):
    spec = jobset(roles, kind)["spec"]
    names = [each["name"] for each in spec["replicatedJobs"]]
    assert names == [role if kind is Kind.JOBSET or role != "worker" else "node" for role in roles]
    rules = spec["failurePolicy"]["rules"]
    assert len({each["name"] for each in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
        assert set(rule["onJobFailureReasons"]) <= REASONS


def test_the_leading_roles_decide_success():
    assert jobset(MULTI_WORKER)["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]
    assert jobset(PARAMETER_SERVER)["spec"]["successPolicy"]["targetReplicatedJobs"] == ["chief"]
    assert jobset(MULTI_WORKER, Kind.TRAINJOB)["spec"]["successPolicy"]["targetReplicatedJobs"] == ["node"]


@pytest.mark.parametrize("roles", BOTH, ids=IDS)
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"code": 2}, "FailJobSet"),
        ({"code": 42}, "RestartJobSetAndIgnoreMaxRestarts"),
        ({"condition": "DisruptionTarget"}, "RestartJobSetAndIgnoreMaxRestarts"),
        ({"code": 1}, "RestartJobSet"),
        ({"code": 137}, "RestartJobSet"),
        ({"code": 75}, "RestartJobSet"),
    ],
    ids=str,
)
def test_what_follows_from_the_end_of_a_pod(roles, failure, expected):
    spec = jobset(roles, max_restarts=3)["spec"]
    assert (spec["failurePolicy"]["maxRestarts"], spec["failurePolicy"]["restartStrategy"]) == (3, "BlockingRecreate")
    for each in spec["replicatedJobs"]:
        reason, message = failed_job(each["template"]["spec"], **failure)
        assert action(spec["failurePolicy"], reason, message) == expected


def test_a_deadline_ends_the_jobset():
    policy = jobset(MULTI_WORKER, timeout_s=90.2)["spec"]["failurePolicy"]
    assert action(policy, "DeadlineExceeded", "Job was active longer than its deadline") == "FailJobSet"


@pytest.mark.parametrize("kind", [Kind.JOBSET, Kind.TRAINJOB])
@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_tf_config_names_each_pod_as_dns_does(roles, kind):
    found = pods(manifest(workload(roles), options(kind=kind, name="mine", port=5000)))
    check_addresses(found)
    assert {pod.subdomain for pod in found} == {"mine"}


def test_the_headless_service_of_a_job_names_its_pods():
    _, service, job = manifest(workload(), options(kind=Kind.JOB, name="mine", port=5000))
    found = pods([job])
    check_addresses(found)
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()


def check_addresses(found):
    for pod in found:
        config = json.loads(pod.env["TF_CONFIG"])
        assert config["task"] == {"type": pod.role, "index": pod.index}
        assert config["cluster"][pod.role][pod.index] == f"{pod.host}:5000"
        assert sum(map(len, config["cluster"].values())) == len(found)


@pytest.mark.parametrize("kind", [Kind.JOBSET, Kind.TRAINJOB])
def test_an_attempt_is_known_to_each_pod_of_a_jobset_and_to_none_of_a_job(kind):
    objects = manifest(workload(PARAMETER_SERVER), options(kind=kind))
    assert {pod.env["TFDIST_ATTEMPT"] for pod in pods(objects, attempt=2)} == {"2"}
    assert all("TFDIST_ATTEMPT" not in pod.env for pod in pods(manifest(workload(), options(kind=Kind.JOB))))


@pytest.mark.parametrize("kind", [Kind.JOBSET, Kind.TRAINJOB])
@pytest.mark.parametrize("roles", BOTH, ids=IDS)
def test_only_the_pods_of_the_job_can_connect_to_them(roles, kind):
    policy, jobset = with_jobset(manifest(workload(roles), options(kind=kind, name="mine")))
    admitted = policy["spec"]["podSelector"]["matchLabels"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": admitted}}]}]
    assert all(admitted.items() <= labels.items() for labels in labels_of_pods(jobset))
    (_, other) = manifest(workload(roles), options(name="other"))
    assert not any(admitted.items() <= labels.items() for labels in labels_of_pods(other))


def labels_of_pods(jobset):
    return [job["template"]["spec"]["template"]["metadata"]["labels"] for job in jobset["spec"]["replicatedJobs"]]
