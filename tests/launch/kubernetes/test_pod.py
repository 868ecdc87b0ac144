"""A pod: its devices, threads, volumes and rights, and how texts pass through the kubelet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.kubernetes.manifest import literal, manifest

from .kubelet import CPUS, expand, pods
from .workloads import PARAMETER_SERVER, options, workload


def pod(role="worker", *, roles=PARAMETER_SERVER, workload_values=None, **values):
    """The first pod of the role."""
    objects = manifest(workload(roles, **(workload_values or {})), options(**values))
    return next(each for each in pods(objects) if each.role == role)


def test_only_workers_see_gpus():
    limits = {role: pod(role, gpus=2, memory="8Gi").container["resources"]["limits"] for role in PARAMETER_SERVER}
    assert limits["worker"] == {"memory": "8Gi", "nvidia.com/gpu": "2"}
    assert limits["chief"] == limits["ps"] == {"memory": "8Gi"}
    visible = {role: pod(role, gpus=2).env.get("CUDA_VISIBLE_DEVICES") for role in PARAMETER_SERVER}
    assert visible == {"chief": "-1", "worker": None, "ps": "-1"}
    assert "resources" not in pod().container


@pytest.mark.parametrize(("cpus", "threads"), [(3, "3"), (None, CPUS)])
def test_thread_pools_have_the_size_of_the_cpu_limit(cpus, threads):
    env = pod(cpus=cpus).env
    assert (env["TF_NUM_INTRAOP_THREADS"], env["OMP_NUM_THREADS"]) == (threads, threads)


def test_several_gpus_get_shared_memory():
    assert "volumes" not in pod(gpus=1).spec
    (volume,) = pod(gpus=2).spec["volumes"]
    (mount,) = pod(gpus=2).container["volumeMounts"]
    assert (volume["emptyDir"], mount["mountPath"]) == ({"medium": "Memory"}, "/dev/shm")
    assert "volumes" not in pod("ps", gpus=2).spec


def test_the_volume_is_mounted_in_every_pod():
    for role in PARAMETER_SERVER:
        (volume,) = pod(role, pvc="data").spec["volumes"]
        assert volume["persistentVolumeClaim"] == {"claimName": "data"}
        assert pod(role, pvc="data").container["volumeMounts"] == [{"name": "tfdist", "mountPath": "/tfdist"}]


def test_a_pod_has_no_rights_that_it_does_not_need():
    spec = pod().spec
    assert (spec["enableServiceLinks"], spec["automountServiceAccountToken"]) == (False, False)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    container = pod().container["securityContext"]
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod().env["HOME"] == "/tmp"
    assert pod().container["terminationMessagePolicy"] == "FallbackToLogsOnError"


@given(st.text(alphabet="$()A{} ", max_size=12))
def test_a_literal_reaches_the_container_unchanged(text):
    assert expand(literal(text), {"A": "replaced"}) == text


def test_a_reference_would_be_replaced_otherwise():
    known = {"A": "1", "B": "$(A)"}
    assert expand("$(A) $(B) $(C) $$(A) $A $ $$", known) == "1 $(A) $(C) $(A) $A $ $"
