"""Manifests against the schemas of Kubernetes, all versions that have every field, of JobSet and of Kubeflow Trainer.

The models of JobSet and Trainer drop fields that they do not know, so their output is compared with their input.
trainer_schemas.json has what the API server checks of Trainer's objects, except pods, which Kubernetes' schemas check.
"""

import copy
import json
from functools import cache
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest

from tfdist.launch.kubernetes.manifest import manifest
from tfdist.launch.kubernetes.options import Kind

from .workloads import MULTI_WORKER, PARAMETER_SERVER, options, workload

FIRST = (1, 29)
"""Older ones lack podReplacementPolicy, or have it only behind a feature gate."""
VERSIONS = [each for each in kubernetes_validate.utils.all_versions() if tuple(map(int, each.split(".")[:2])) >= FIRST]
OLDEST_AND_NEWEST = (VERSIONS[0], VERSIONS[-1])
SMALL = {"workload": {}, "options": {}}
FULL = {
    "workload": {"command": ("python", "train.py"), "env": {"A": "1"}, "timeout_s": 3600.5},
    "options": {
        "namespace": "team", "queue": "gpus", "pvc": "data", "secret": "keys", "cpus": 4, "memory": "8Gi",
        "gpus": 2,
    },
}  # fmt: skip


@cache
def models():
    """Those of JobSet and Trainer, imported late: it takes two seconds, in each process that collects tests."""
    from kubeflow_trainer_api import models

    return models


def objects(roles, kind, values):
    return manifest(workload(roles, **values["workload"]), options(kind=kind, **values["options"]))


def jobset(roles=PARAMETER_SERVER, values=FULL):
    return objects(roles, Kind.JOBSET, values)[-1]


def jobs_of(jobset_spec):
    """The Jobs that the controller creates."""
    for each in jobset_spec["replicatedJobs"]:
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": each["name"]}, **each["template"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "version",
    [pytest.param(each, marks=[] if each in OLDEST_AND_NEWEST else [pytest.mark.thorough]) for each in VERSIONS],
)
@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
def test_each_object_is_valid(version, values):
    built_in = [*objects(MULTI_WORKER, Kind.JOB, values), *objects(PARAMETER_SERVER, Kind.JOBSET, values)[:-1]]
    _, runtime, _ = objects(PARAMETER_SERVER, Kind.TRAINJOB, values)
    for spec in (jobset(values=values)["spec"], runtime["spec"]["template"]["spec"]):
        built_in += jobs_of(spec)
    for each in built_in:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
@pytest.mark.parametrize("roles", [MULTI_WORKER, PARAMETER_SERVER], ids=["multiworker", "parameter-server"])
def test_a_jobset_has_only_fields_that_jobset_knows(roles, values):
    given = jobset(roles, values)
    assert models().JobsetV1alpha2JobSet.from_dict(copy.deepcopy(given)).to_dict() == given


SCHEMAS = json.loads(Path(__file__).with_name("trainer_schemas.json").read_text(encoding="utf-8"))
TRAINER_MODELS = {"TrainingRuntime": "TrainerV1alpha1TrainingRuntime", "TrainJob": "TrainerV1alpha1TrainJob"}


def trainer_schema(kind):
    """As the API server reads it with --validate=strict: fields that it does not know are errors."""

    def strict(node):
        if isinstance(node, list):
            return [strict(each) for each in node]
        if not isinstance(node, dict):
            return node
        closed = node.get("type") == "object" and isinstance(node.get("properties"), dict)
        return {name: strict(each) for name, each in node.items()} | ({"additionalProperties": False} if closed else {})

    return strict(SCHEMAS[kind])


@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
@pytest.mark.parametrize("roles", [MULTI_WORKER, PARAMETER_SERVER], ids=["multiworker", "parameter-server"])
def test_a_trainjob_and_its_runtime_have_only_what_trainer_knows(roles, values):
    for each in objects(roles, Kind.TRAINJOB, values)[1:]:
        jsonschema.validate(each, trainer_schema(each["kind"]))
        assert getattr(models(), TRAINER_MODELS[each["kind"]]).from_dict(copy.deepcopy(each)).to_dict() == each


WRONG = [
    ("TrainingRuntime", ["mlPolicy"], "nodes", 2),
    ("TrainingRuntime", ["mlPolicy"], "numNodes", "2"),
    ("TrainingRuntime", ["template", "spec", "failurePolicy", "rules", 0], "onMessage", "x"),
    ("TrainingRuntime", ["template", "spec", "failurePolicy", "rules", 0], "action", "Restart"),
    ("TrainJob", ["runtimeRef"], "namespace", "team"),
    ("TrainJob", [], "timeout", 3),
]


@pytest.mark.parametrize(("kind", "path", "name", "value"), WRONG, ids=str)
def test_a_wrong_field_of_a_trainjob_would_be_found(kind, path, name, value):
    (wrong,) = (each for each in objects(MULTI_WORKER, Kind.TRAINJOB, FULL) if each["kind"] == kind)
    place = wrong["spec"]
    for step in path:
        place = place[step]
    place[name] = value
    with pytest.raises(jsonschema.ValidationError, match=f"{name}|{value}"):
        jsonschema.validate(wrong, trainer_schema(kind))


def test_an_unknown_field_would_be_found():
    (job, *_) = jobs_of(jobset()["spec"])
    job["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePolicy"):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)
    given = jobset()
    given["spec"]["failurePolicy"]["rules"][0]["onMessage"] = "x"
    assert models().JobsetV1alpha2JobSet.from_dict(copy.deepcopy(given)).to_dict() != given
