"""The objects of a manifest, and options that are refused."""

import json

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes.manifest import manifest
from tfdist.launch.kubernetes.options import Kind

from .kubelet import pods, with_jobset
from .workloads import MULTI_WORKER, PARAMETER_SERVER, options, workload


def kinds(**values):
    return [each["kind"] for each in manifest(workload(), options(**values))]


def test_policies_and_services_exist_before_the_pods():
    assert kinds() == ["NetworkPolicy", "JobSet"]
    assert kinds(kind=Kind.JOB) == ["NetworkPolicy", "Service", "Job"]
    assert kinds(kind=Kind.TRAINJOB) == ["NetworkPolicy", "TrainingRuntime", "TrainJob"]


@pytest.mark.parametrize("kind", [Kind.JOB, Kind.TRAINJOB])
def test_the_namespace_is_that_of_every_object_and_the_queue_only_that_of_the_job(kind):
    objects = manifest(workload(), options(kind=kind, namespace="team", queue="gpus"))
    assert {each["metadata"]["namespace"] for each in objects} == {"team"}
    queues = [each["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") for each in objects]
    assert queues == [None, None, "gpus"]
    assert all("namespace" not in each["metadata"] for each in manifest(workload(), options()))


@pytest.mark.parametrize("kind", Kind)
def test_a_finished_job_is_kept_for_a_day(kind):
    (*_, last) = with_jobset(manifest(workload(), options(kind=kind)))
    assert last["spec"]["ttlSecondsAfterFinished"] == 86400


REFUSED = [
    ({"name": "Mine"}, "--name Mine: must start with a letter; use lower-case letters, digits and -"),
    ({"name": "1st"}, "--name 1st: must start with a letter"),
    ({"name": "a.b"}, "--name a.b: must start"),
    ({"name": ""}, "--name '': must start"),
    ({"namespace": "a_b"}, "--namespace a_b: not a namespace; use at most 63 lower-case letters, digits and -"),
    ({"namespace": "a.b"}, "--namespace a.b: not a namespace; use at most 63 lower-case letters, digits and -"),
    ({"namespace": "a" * 64}, f"--namespace {'a' * 64}: not a namespace; use at most 63"),
    ({"queue": "A"}, "--queue A: not the name of a LocalQueue"),
    ({"queue": "a" * 64}, f"--queue {'a' * 64}: not the name of a LocalQueue; use at most 63"),
    ({"pvc": "a..b"}, "--pvc a..b: not the name of a claim"),
    ({"pvc": "my claim"}, "--pvc my claim: not the name of a claim"),
    ({"secret": "-a"}, "--secret -a: not the name of a Secret"),
    ({"memory": "8 GB"}, "--memory 8 GB: not a positive quantity; use bytes with a unit, as 8Gi"),
    ({"memory": "8gb"}, "--memory 8gb: not a positive quantity"),
    ({"memory": "0.0Gi"}, "--memory 0.0Gi: not a positive quantity"),
    ({"memory": "0e9"}, "--memory 0e9: not a positive quantity"),
    ({"memory": "-1Gi"}, "--memory -1Gi: not a positive quantity"),
    ({"memory": "1.Gi.5"}, "--memory 1.Gi.5: not a positive quantity"),
    ({"cpus": 0}, "--cpus 0: must be at least 1; omit it for no limit"),
    ({"gpus": -1}, "--gpus -1: must be at least 0"),
    ({"port": 0}, "--port 0: invalid for 1 task"),
    ({"port": 70000}, "--port 70000: invalid for 1 task"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=str)
def test_a_value_that_the_api_server_would_reject_is_refused(values, message):
    with pytest.raises(TfdistError) as refusal:
        manifest(workload(), options(**values))
    assert str(refusal.value).startswith(message)


ACCEPTED = [
    {"name": "a" * 45},
    {"namespace": "1-a"},
    {"namespace": "a" * 63},
    {"queue": "team.gpus"},
    {"pvc": "a.b-1"},
    *({"memory": memory} for memory in ("1000", "1.5Gi", "0.5Gi", ".5Ti", "08Gi", "129M", "129e6", "1Pi", "2k")),
]


@pytest.mark.parametrize("values", ACCEPTED, ids=str)
def test_a_value_that_the_api_server_accepts_is_accepted(values):
    assert manifest(workload(), options(**values))


@pytest.mark.parametrize("kind", Kind)
def test_the_longest_name_of_a_pod_has_63_characters(kind):
    before = {"jobset": "-worker-0", "job": "", "trainjob": "-node-0"}[kind]
    longest = 63 - len(f"{before}-2-abcde")
    objects = manifest(workload(MULTI_WORKER), options(kind=kind, name="a" * longest))
    assert max(len(f"{pod.hostname}-abcde") for pod in pods(objects)) == 63
    with pytest.raises(TfdistError, match=f"characters; use at most {longest}$"):
        manifest(workload(MULTI_WORKER), options(kind=kind, name="a" * (longest + 1)))


def test_a_job_is_not_restarted():
    with pytest.raises(TfdistError, match="--max-restarts 3: a Job cannot restart all its pods together"):
        manifest(workload(max_restarts=3), options(kind=Kind.JOB))


@pytest.mark.parametrize("roles", [MULTI_WORKER, PARAMETER_SERVER], ids=["multiworker", "parameter-server"])
def test_a_trainjob_runs_the_jobset_with_the_names_that_trainer_requires(roles):
    text = json.dumps(manifest(workload(roles, max_restarts=3), options(pvc="data"))[-1]["spec"])
    text = text.replace('"name": "tfdist", "image"', '"name": "node", "image"').replace(
        "training-worker-0", "training-node-0"
    )
    text = text.replace('"containerName": "tfdist"', '"containerName": "node"').replace(
        '"name": "worker"', '"name": "node"'
    )
    text = text.replace('"targetReplicatedJobs": ["worker"]', '"targetReplicatedJobs": ["node"]')
    (_, jobset) = with_jobset(manifest(workload(roles, max_restarts=3), options(kind=Kind.TRAINJOB, pvc="data")))
    (nodes,) = (each["template"] for each in jobset["spec"]["replicatedJobs"] if each["name"] == "node")
    assert nodes.pop("metadata") == {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    assert jobset["spec"] == json.loads(text)
    assert jobset["metadata"]["name"] == "training"
