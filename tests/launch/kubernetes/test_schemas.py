"""Manifests against the schemas of Kubernetes, all versions that have every field, and of JobSet.

JobSet's models drop fields that they do not know, so their output is compared with their input.
"""

import copy

import kubernetes_validate
import pytest
from kubeflow_trainer_api import models

from tfdist.launch.kubernetes.manifest import manifest
from tfdist.launch.kubernetes.options import Kind

from .workloads import MULTI_WORKER, PARAMETER_SERVER, options, workload

FIRST = (1, 29)
"""Older ones lack podReplacementPolicy, or have it only behind a feature gate."""
VERSIONS = [each for each in kubernetes_validate.utils.all_versions() if tuple(map(int, each.split(".")[:2])) >= FIRST]
SMALL = {"workload": {}, "options": {}}
FULL = {
    "workload": {"command": ("python", "train.py"), "env": {"A": "1"}, "timeout_s": 3600.5},
    "options": {
        "namespace": "team", "queue": "gpus", "pvc": "data", "secret": "keys", "cpus": 4, "memory": "8Gi",
        "gpus": 2,
    },
}  # fmt: skip


def objects(roles, kind, values):
    return manifest(workload(roles, **values["workload"]), options(kind=kind, **values["options"]))


def jobset(roles=PARAMETER_SERVER, values=FULL):
    return objects(roles, Kind.JOBSET, values)[-1]


def jobs_of(jobset):
    """The Jobs that the controller creates."""
    for each in jobset["spec"]["replicatedJobs"]:
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": each["name"]}, **each["template"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
def test_each_object_is_valid(version, values):
    built_in = [*objects(MULTI_WORKER, Kind.JOB, values), *objects(PARAMETER_SERVER, Kind.JOBSET, values)[:-1]]
    for each in (*built_in, *jobs_of(jobset(values=values))):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
@pytest.mark.parametrize("roles", [MULTI_WORKER, PARAMETER_SERVER], ids=["multiworker", "parameter-server"])
def test_a_jobset_has_only_fields_that_jobset_knows(roles, values):
    given = jobset(roles, values)
    assert models.JobsetV1alpha2JobSet.from_dict(copy.deepcopy(given)).to_dict() == given


def test_an_unknown_field_would_be_found():
    (job, *_) = jobs_of(jobset())
    job["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePolicy"):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)
    given = jobset()
    given["spec"]["failurePolicy"]["rules"][0]["onMessage"] = "x"
    assert models.JobsetV1alpha2JobSet.from_dict(copy.deepcopy(given)).to_dict() != given
