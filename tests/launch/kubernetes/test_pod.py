"""A pod: its devices, threads, volumes, rights and arguments; how texts pass through the kubelet; TF_CONFIG."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import parse_tf_config
from tfdist.launch.kubernetes.manifest import literal, manifest, tf_config
from tfdist.launch.kubernetes.options import Kind

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


def test_without_limits_a_pod_has_none():
    assert "resources" not in pod().container


@pytest.mark.parametrize(("cpus", "threads"), [(3, "3"), (None, CPUS)])
def test_thread_pools_have_the_size_of_the_cpu_limit(cpus, threads):
    env = pod(cpus=cpus).env
    assert (env["TF_NUM_INTRAOP_THREADS"], env["OMP_NUM_THREADS"]) == (threads, threads)


def test_variables_of_the_user_replace_defaults_and_are_not_expanded():
    env = {"OMP_NUM_THREADS": "1", "PRICE": "$(HOME) $$"}
    assert pod(cpus=4, workload_values={"env": env}).env.items() >= env.items()


def test_the_command_of_the_user_arrives_as_it_is():
    command = ("sh", "-c", "echo $$ $(HOME) 'a b'")
    words = pod(workload_values={"command": command}, name="mine").argv
    assert words == (
        "tfdist", "launch", "--inherit", "tf-config", "--name", "mine-worker-0", "--", *command
    )  # fmt: skip


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


def test_a_secret_becomes_variables():
    assert pod(secret="keys").container["envFrom"] == [{"secretRef": {"name": "keys"}}]


@pytest.mark.parametrize(("save_s", "grace_s"), [(25.0, 35), (120.5, 131)])
def test_the_kubelet_waits_for_longer_than_a_save_takes(save_s, grace_s):
    assert pod(workload_values={"save_s": save_s}).spec["terminationGracePeriodSeconds"] == grace_s


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


def test_a_pod_of_a_job_knows_no_attempt():
    (first, *_) = pods(manifest(workload(), options(kind=Kind.JOB)))
    assert "TFDIST_ATTEMPT" not in first.env


@given(st.text(alphabet="$()A{} ", max_size=12))
def test_a_literal_reaches_the_container_unchanged(text):
    assert expand(literal(text), {"A": "replaced"}) == text


def test_a_reference_would_be_replaced_otherwise():
    assert expand("$(A) $$(A) $(B) $A", {"A": "1"}) == "1 $(A) $(B) $A"


def test_tf_config_is_that_of_the_index():
    addresses = {"chief": ["c:1"], "worker": ["w0:1", "w1:1"]}
    text = expand(tf_config(addresses, "worker"), {"TFDIST_INDEX": "1"})
    cluster, task = parse_tf_config(text)
    assert (cluster.addresses, task.name) == ({"chief": ("c:1",), "worker": ("w0:1", "w1:1")}, "worker-1")
    assert type(json.loads(text)["task"]["index"]) is int
