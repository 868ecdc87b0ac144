"""What the controllers and the kubelet make of a manifest: the name, environment and command of each pod, and its end.

Source of how references are replaced: expand.go of Kubernetes, where `$$` is `$`, and an unknown reference stays.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

CPUS = "2"
"""Of each node."""


@dataclass(frozen=True)
class Pod:
    role: str
    index: int
    hostname: str
    subdomain: str
    env: Mapping[str, str]
    """Of its container, in addition to the image's."""
    argv: tuple[str, ...]
    spec: Mapping[str, Any]

    @property
    def host(self) -> str:
        """Its name for other pods of the namespace."""
        return f"{self.hostname}.{self.subdomain}"

    @property
    def container(self) -> Mapping[str, Any]:
        (container,) = self.spec["containers"]
        return container


ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def with_jobset(objects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The objects, with the JobSet that Kubeflow Trainer creates in place of a TrainJob and its runtime.

    Sources: core/trainingruntime.go, plugins/jobset/{jobset,builder}.go and trainingruntime_webhook.go of Trainer 2.3.
    """
    kept, runtimes = [], {}
    for each in objects:
        if each["kind"] == "TrainingRuntime":
            runtimes[each["metadata"]["name"]] = copy.deepcopy(each["spec"])
        elif each["kind"] == "TrainJob":
            reference = each["spec"]["runtimeRef"]
            assert (reference["apiGroup"], reference["kind"]) == ("trainer.kubeflow.org", "TrainingRuntime")
            runtime = runtimes[reference["name"]]
            spec = runtime["template"]["spec"]
            (nodes,) = (job["template"] for job in spec["replicatedJobs"] if "metadata" in job["template"])
            assert nodes["metadata"]["labels"] == {ANCESTOR: "trainer"}
            assert [each["name"] for each in nodes["spec"]["template"]["spec"]["containers"]] == ["node"]
            nodes["spec"] |= dict.fromkeys(("parallelism", "completions"), runtime["mlPolicy"]["numNodes"])
            metadata = {"name": each["metadata"]["name"], **runtime["template"]["metadata"]}
            kept.append(
                {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
            )
        else:
            kept.append(each)
    return kept


def pods(objects: Iterable[Mapping[str, Any]], attempt: int = 0) -> list[Pod]:
    """The pods of a manifest; `attempt`: how often its JobSet was restarted."""
    for each in with_jobset(objects):
        name = each["metadata"]["name"]
        if each["kind"] == "JobSet":
            label = {"jobset.sigs.k8s.io/restart-attempt": str(attempt)}
            jobs = {job["name"]: job["template"]["spec"] for job in each["spec"]["replicatedJobs"]}
            return [
                pod
                for job, spec in jobs.items()
                for pod in pods_of_job("worker" if job == "node" else job, spec, f"{name}-{job}-0", name, label)
            ]
        if each["kind"] == "Job":
            return list(pods_of_job("worker", each["spec"], name, each["spec"]["template"]["spec"]["subdomain"], {}))
    raise AssertionError("no JobSet and no Job")


def pods_of_job(
    role: str, job: Mapping[str, Any], name: str, subdomain: str, labels: Mapping[str, str]
) -> Iterable[Pod]:
    spec = job["template"]["spec"]
    labels = {**job["template"]["metadata"]["labels"], **labels}
    (container,) = spec["containers"]
    for index in range(job["completions"]):
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        env = environment(container, {"labels": labels, "annotations": annotations})
        argv = tuple(expand(word, env) for word in (*container["command"], *container["args"]))
        yield Pod(role, index, f"{name}-{index}", subdomain, env, argv, spec)


def environment(container: Mapping[str, Any], metadata: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    env: dict[str, str] = {}
    for each in container["env"]:
        env[each["name"]] = expand(each["value"], env) if "value" in each else source(each, container, metadata)
    return env


def source(variable: Mapping[str, Any], container: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    ((kind, value),) = variable["valueFrom"].items()
    if kind == "resourceFieldRef":
        assert value == {"resource": "limits.cpu"}
        return str(container.get("resources", {}).get("limits", {}).get("cpu", CPUS))
    path = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", value["fieldPath"])
    assert kind == "fieldRef"
    assert path is not None
    return str(metadata[path[1]][path[2]])


def expand(text: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


def action(failure_policy: Mapping[str, Any], reason: str, message: str) -> str:
    """What JobSet does after a Job has failed: the first rule that matches, else a restart that counts."""
    for rule in failure_policy["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if reason in rule["onJobFailureReasons"] and any(re.search(each, message) for each in patterns):
            return str(rule["action"])
    return "RestartJobSet"


def failed_job(job: Mapping[str, Any], code: int | None = None, condition: str | None = None) -> tuple[str, str]:
    """Reason and message of the Job controller after a pod failed with this exit code or condition."""
    for index, rule in enumerate(job["podFailurePolicy"]["rules"]):
        ending = f"matching {rule['action']} rule at index {index}"
        if code in rule.get("onExitCodes", {}).get("values", ()):
            return "PodFailurePolicy", f"Container tfdist for pod default/p-0 failed with exit code {code} {ending}"
        if condition in [each["type"] for each in rule.get("onPodConditions", ())]:
            return "PodFailurePolicy", f"Pod default/p-0 has condition {condition} {ending}"
    assert job["backoffLimit"] == 0
    return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
