"""A job as Kubernetes objects: a JobSet, a TrainJob, or an Indexed Job for clusters without JobSet. Starts nothing.

Sources: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/,
https://jobset.sigs.k8s.io/docs/tasks/failure_policy/,
https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/ and
https://trainer.kubeflow.org/en/latest/operator-guides/job-template.html
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.job import NO_GPUS
from tfdist.launch.kubernetes.options import NODE, VOLUME, Kind, KubernetesOptions, Workload, check_options
from tfdist.launch.text import listed

KEEP_S = 24 * 3600
"""How long a finished job and the logs of its pods are kept."""
WRONG_INPUT = 2
"""Index of the rule for wrong input among those of a Job's podFailurePolicy."""
STOP_MARGIN_S = 10
"""Seconds between the end of the save and SIGKILL by the kubelet: for the outcome and the run's files."""
INDEX = "TFDIST_INDEX"
"""The task's index among those of its role. The Job controller appends JOB_COMPLETION_INDEX to a container's
variables, and a variable can refer only to those before it."""
_INDEX_REFERENCE = f"$({INDEX})"
# Any user but root. Files on the volume belong to this user and group.
_USER = 1000
_MAX_NAME = 63  # characters of a host name (RFC 1123)
_TRAINER = "trainer.kubeflow.org"
_SUFFIX = "-abcde"  # the random end of a pod's name
Addresses = Mapping[str, Sequence[str]]
"""The addresses of all tasks, by role."""


def manifest(workload: Workload, options: KubernetesOptions) -> list[dict[str, Any]]:
    """The objects to create, in this order.

    Raises:
        TfdistError: an option is wrong, or does not suit this job.
    """
    check_options(options)
    # The beginning of a pod's name is its host name. In a JobSet, 0 is the index of the role's only Job.
    jobs = {role: "" if options.kind is Kind.JOB else f"-{options.job_of(role)}-0" for role in workload.roles}
    names = {
        role: [f"{options.name}{jobs[role]}-{index}" for index in range(shape.count)]
        for role, shape in workload.roles.items()
    }
    longest = max((pods[-1] for pods in names.values()), key=len)
    excess = len(longest + _SUFFIX) - _MAX_NAME
    if excess > 0:
        raise TfdistError(
            f"--name {options.name}: too long, as the pods' names ({longest}{_SUFFIX}) have at most {_MAX_NAME} "
            f"characters; use at most {len(options.name) - excess}"
        )
    addresses = {role: [f"{pod}.{options.name}:{options.port}" for pod in pods] for role, pods in names.items()}
    build = {Kind.JOBSET: _jobset, Kind.JOB: _indexed_job, Kind.TRAINJOB: _trainjob}[options.kind]
    objects = build(workload, options, addresses)
    if options.network_policy:  # only the job's pods may connect to them, on any port: NCCL chooses its own
        spec = {
            "podSelector": {"matchLabels": options.labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": options.labels}}]}],
        }
        objects.insert(0, _object("networking.k8s.io/v1", "NetworkPolicy", options, spec))
    return objects


def _object(version: str, kind: str, options: KubernetesOptions, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    """An object with these labels, besides those of all objects."""
    namespace = {} if options.namespace is None else {"namespace": options.namespace}
    metadata = {"name": options.name, **namespace, "labels": {**options.labels, **labels}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _indexed_job(workload: Workload, options: KubernetesOptions, addresses: Addresses) -> list[dict[str, Any]]:
    """A Service, which gives each pod a name also before it is ready, and the Job (batch/v1)."""
    if len(workload.roles) > 1:
        raise TfdistError(
            f"--kind job: all its pods are alike, and these have the roles {listed(workload.roles)}; use --kind jobset"
        )
    if workload.max_restarts:
        raise TfdistError(
            f"--max-restarts {workload.max_restarts}: a Job cannot restart all its pods together; use --kind jobset, "
            "or omit it"
        )
    (role,) = workload.roles
    job = {"ttlSecondsAfterFinished": KEEP_S, **_job_spec(workload, options, role, addresses)}
    job["template"]["spec"]["subdomain"] = options.name
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": options.labels,
        "ports": [{"name": "tensorflow", "port": options.port}],
    }
    return [_object("v1", "Service", options, service), _object("batch/v1", "Job", options, job, **options.queue_label)]


def _jobset(workload: Workload, options: KubernetesOptions, addresses: Addresses) -> list[dict[str, Any]]:
    spec = _jobset_spec(workload, options, addresses)
    return [_object("jobset.x-k8s.io/v1alpha2", "JobSet", options, spec, **options.queue_label)]


def _trainjob(workload: Workload, options: KubernetesOptions, addresses: Addresses) -> list[dict[str, Any]]:
    """A runtime with all of the JobSet, and the TrainJob that runs it: TF_CONFIG suits no other number of nodes."""
    spec = _jobset_spec(workload, options, addresses)
    (nodes,) = [each["template"] for each in spec["replicatedJobs"] if each["name"] == NODE]
    nodes["metadata"] = {"labels": {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}}
    runtime = {  # without the policy of a framework, which would set variables
        "mlPolicy": {"numNodes": workload.roles["worker"].count},
        "template": {"metadata": {"labels": options.labels}, "spec": spec},
    }
    job = {"runtimeRef": {"apiGroup": _TRAINER, "kind": "TrainingRuntime", "name": options.name}}
    framework = {f"{_TRAINER}/framework": "tensorflow"}
    return [
        _object(f"{_TRAINER}/v1alpha1", "TrainingRuntime", options, runtime, **framework),
        _object(f"{_TRAINER}/v1alpha1", "TrainJob", options, job, **options.queue_label),
    ]


def _jobset_spec(workload: Workload, options: KubernetesOptions, addresses: Addresses) -> dict[str, Any]:
    """One Job for each role, restarted together. The controller creates the Service that gives the pods their names."""
    # The first rule that matches counts; without one, the JobSet is restarted, at most `max_restarts` times. The rule
    # for exit code 2 needs JobSet 0.10: older ones do not know onJobFailureMessagePatterns.
    message = {"onJobFailureMessagePatterns": [f"matching FailJob rule at index {WRONG_INPUT}$"]}
    rules = [
        {"name": "wrongInput", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"], **message},
        {
            "name": "preempted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        },
        {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]
    jobs = {role: _job_spec(workload, options, role, addresses) for role in workload.roles}
    leading = [options.job_of(name) for name, role in workload.roles.items() if role.leads]
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": leading},
        "failurePolicy": {"maxRestarts": workload.max_restarts, "restartStrategy": "BlockingRecreate", "rules": rules},
        "ttlSecondsAfterFinished": KEEP_S,
        "replicatedJobs": [
            {"name": options.job_of(role), "replicas": 1, "template": {"spec": spec}} for role, spec in jobs.items()
        ],
    }


def _job_spec(workload: Workload, options: KubernetesOptions, role: str, addresses: Addresses) -> dict[str, Any]:
    """The spec of the Job whose pods are the tasks of one role. It fails with the first pod that fails."""
    count = workload.roles[role].count
    # Each rule fails the Job, with a message that names its index. The status is optional from Kubernetes 1.35 on only.
    rules: list[dict[str, Any]] = [{"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    for code in (ExitCode.PREEMPTED, ExitCode.USAGE):
        rules.append({"onExitCodes": {"containerName": options.container, "operator": "In", "values": [int(code)]}})
    deadline = {} if workload.timeout_s is None else {"activeDeadlineSeconds": math.ceil(workload.timeout_s)}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [{"action": "FailJob", **rule} for rule in rules]},
        **deadline,
        "template": _pod_template(workload, options, role, addresses),
    }


def tf_config(addresses: Addresses, role: str) -> str:
    """TF_CONFIG of every task of `role`; the kubelet puts in the index."""
    cluster = json.dumps({name: list(hosts) for name, hosts in addresses.items()})
    return f'{{"cluster": {cluster}, "task": {{"type": "{role}", "index": {_INDEX_REFERENCE}}}}}'


def literal(text: str) -> str:
    """The text as an argument or a value that the kubelet leaves as it is.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return text.replace("$", "$$")


def _field_variable(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _pod_template(workload: Workload, options: KubernetesOptions, role: str, addresses: Addresses) -> dict[str, Any]:
    gpus = options.gpus if workload.roles[role].computes else 0
    arguments = list(map(literal, workload.arguments))
    if arguments[0] == "launch":
        arguments += ["--name", f"{options.name}-{role}-{_INDEX_REFERENCE}"]
    if workload.command:
        arguments += ["--", *map(literal, workload.command)]
    container: dict[str, Any] = {"name": options.container, "image": options.image}
    container |= {"command": ["tfdist"], "args": arguments}
    limits = {"cpu": str(options.cpus or ""), "memory": options.memory or "", "nvidia.com/gpu": str(gpus or "")}
    if any(limits.values()):
        container["resources"] = {"limits": {name: value for name, value in limits.items() if value}}
    if options.secret is not None:
        container["envFrom"] = [{"secretRef": {"name": options.secret}}]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["env"] = _environment(workload, options, role, addresses)
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(workload.save_s) + STOP_MARGIN_S,
        "enableServiceLinks": False,  # a Service named tfdist would set TFDIST_PORT=tcp://...
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _USER),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    volumes: dict[str, dict[str, Any]] = {}
    if options.pvc is not None:
        volumes[VOLUME] = {"name": "tfdist", "persistentVolumeClaim": {"claimName": options.pvc}}
    if gpus > 1:  # they exchange data through /dev/shm, of which containers have 64 MB by default
        volumes["/dev/shm"] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    if volumes:
        container["volumeMounts"] = [{"name": each["name"], "mountPath": path} for path, each in volumes.items()]
        spec["volumes"] = list(volumes.values())
    return {"metadata": {"labels": options.labels}, "spec": spec}


def _environment(
    workload: Workload, options: KubernetesOptions, role: str, addresses: Addresses
) -> list[dict[str, Any]]:
    """The index comes first, as TF_CONFIG refers to it. The user's variables replace the defaults."""
    sources: dict[str, dict[str, Any]] = {"HOME": {"value": "/tmp"}}  # the user of the pod has no home in most images
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        # The pod's CPU limit, rounded up; without a limit, the number of the node's CPUs.
        sources[name] = {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    if not workload.roles[role].computes:
        sources["CUDA_VISIBLE_DEVICES"] = {"value": NO_GPUS}
    sources |= {name: {"value": literal(value)} for name, value in workload.env.items()}
    fixed = [_field_variable(INDEX, "metadata.annotations['batch.kubernetes.io/job-completion-index']")]
    if options.kind is not Kind.JOB:  # the pods know their attempt, because those of the one before had the same names
        fixed.append(_field_variable("TFDIST_ATTEMPT", "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"))
    if "--inherit" in workload.arguments:
        fixed.append({"name": "TF_CONFIG", "value": tf_config(addresses, role)})
    return [*fixed, *({"name": name, **source} for name, source in sources.items())]
