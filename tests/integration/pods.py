"""Plays the parts of Kubernetes that a JobSet needs: pods in network namespaces, and what happens when they end.

A pod has an address, a host name, a process tree, /dev and /etc/hosts of its own; its first process is its program, as in
a container. It runs as root and with the files of this machine in place of an image. The names of pods appear in all
/etc/hosts at once, some time after the pods have started: a cluster's DNS is late, too.

Of the manifest it obeys env with references and fieldRef, command and args, volumes of claims, grace periods,
podFailurePolicy, failurePolicy and successPolicy.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.launch.kubernetes.kubelet import action, environment, expand, failed_job

from .namespaces import connect, create_hub, remove
from .nethost import SYSTEM_PATH, NetHost

SCRIPT = Path(__file__).with_name("pod.sh")
RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


@dataclass
class Pod:
    """A pod that was started."""

    role: str
    index: int
    host: NetHost
    folder: Path
    process: "subprocess.Popen[bytes]"
    grace_s: float

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 and the number of a signal that killed it."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    @property
    def log(self) -> str:
        """What its container has written."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def message(self) -> str:
        """Its termination message."""
        return (self.folder / "termination-log").read_text()

    def signal(self, number: int) -> None:
        """Send a signal to the container's first process."""
        for child in psutil.Process(self.process.pid).children():
            child.send_signal(number)

    def delete(self) -> None:
        """SIGTERM, and SIGKILL after the grace period."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        if self.exit_code is None:
            self.signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class JobSetRun:
    """A JobSet, its pods, and the controllers that react to them."""

    document: Mapping[str, Any]
    folder: Path
    hosts: Mapping[str, NetHost]
    """A namespace for each pod, by its host name."""
    restarts: int = 0
    """All of them."""
    counted: int = 0
    """Those that count towards maxRestarts."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """Those of the last attempt, by role and index: `worker-1`."""
    ended: list[Pod] = field(default_factory=list)
    """Those of earlier attempts."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """What the manifest wants."""
        return self.document["spec"]

    def start(self) -> None:
        """Create the pods of an attempt, then publish their names."""
        hosts_file = self.folder / f"hosts-{self.restarts}"
        hosts_file.write_text("127.0.0.1 localhost\n")
        for job in self.spec["replicatedJobs"]:
            for index in range(job["template"]["spec"]["parallelism"]):
                self.pods[f"{job['name']}-{index}"] = self._create(job, index, hosts_file)
        domain = self.document["metadata"]["name"]
        with hosts_file.open("a") as file:  # the same file, which the pods have mounted
            file.writelines(f"{host.address} {name}.{domain} {name}\n" for name, host in self.hosts.items())

    def run(self, watch: Callable[["JobSetRun"], None] = lambda _: None, seconds: float = 240.0) -> str:
        """Run the set to its end; `Completed`, or why it failed. `watch` is called all the time."""
        self.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            failed = next((name for name, pod in self.pods.items() if pod.exit_code not in (None, 0)), None)
            if failed is not None:
                result = self._after_failure(failed)
                if result:
                    return result
            elif self._succeeded():
                self.delete_pods()
                return "Completed"
            watch(self)
            time.sleep(0.05)
        raise AssertionError(f"still running: {self.logs()}")

    def delete_pods(self) -> None:
        """End all pods."""
        running = [pod for pod in self.pods.values() if pod.exit_code is None]
        for pod in running:
            pod.signal(signal.SIGTERM)
        for pod in running:
            pod.delete()

    def logs(self) -> str:
        """The logs of all pods."""
        return "\n".join(
            f"--- {pod.folder.name}: {pod.exit_code}\n{pod.log[-3000:]}" for pod in [*self.ended, *self.pods.values()]
        )

    def _succeeded(self) -> bool:
        policy = self.spec["successPolicy"]
        assert policy["operator"] == "All"
        targets = policy["targetReplicatedJobs"]
        return all(pod.exit_code == 0 for pod in self.pods.values() if pod.role in targets)

    def _after_failure(self, failed: str) -> str:
        """Fail the set, or restart it and return nothing."""
        pod = self.pods[failed]
        (job,) = [job["template"]["spec"] for job in self.spec["replicatedJobs"] if job["name"] == pod.role]
        reason, message = failed_job(job, pod.exit_code)
        next_action = action(self.spec["failurePolicy"], reason, message)
        counts = next_action == "RestartJobSet"
        if next_action == "FailJobSet" or (counts and self.counted >= self.spec["failurePolicy"]["maxRestarts"]):
            self.delete_pods()
            return f"Failed: {failed}: {reason}: {message}"
        assert self.spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
        self.delete_pods()
        self.ended += self.pods.values()
        self.pods = {}
        self.restarts, self.counted = self.restarts + 1, self.counted + counts
        self.start()
        return ""

    def _create(self, job: Mapping[str, Any], index: int, hosts_file: Path) -> Pod:
        template = job["template"]["spec"]["template"]
        pod, (container,) = template["spec"], template["spec"]["containers"]
        name = f"{self.document['metadata']['name']}-{job['name']}-0-{index}"
        host, folder = self.hosts[name], self.folder / f"{name}.{self.restarts}"
        (folder / "root").mkdir(parents=True)
        (folder / "termination-log").touch()
        labels = {**template["metadata"]["labels"], RESTART_LABEL: str(self.restarts)}
        metadata = {"labels": labels, "annotations": {INDEX_ANNOTATION: str(index)}}
        variables = {**environment(container, metadata), "JOB_COMPLETION_INDEX": str(index)}
        words = [expand(word, variables) for word in (*container["command"], *container["args"])]
        mount_path = _mount_path(pod, container)
        unshare = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "sh", str(SCRIPT)]
        paths = [folder / "root", name, hosts_file, folder / "termination-log", self.folder / "volume", mount_path]
        env = {"PATH": f"{self.folder / 'bin'}:{SYSTEM_PATH}", "KUBERNETES_SERVICE_HOST": "10.96.0.1", **variables}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", host.namespace, *unshare, *map(str, paths), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**env, **{name: value for name, value in os.environ.items() if name == "TFDIST_TEST_MARK"}},
            )
        return Pod(job["name"], index, host, folder, process, pod["terminationGracePeriodSeconds"])


def _mount_path(pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Where the container has the volume of the claim; empty: nowhere."""
    claims = [each["name"] for each in pod.get("volumes", ()) if "persistentVolumeClaim" in each]
    return next((each["mountPath"] for each in container.get("volumeMounts", ()) if each["name"] in claims), "")


@contextmanager
def pods_of(document: Mapping[str, Any], folder: Path) -> Iterator[JobSetRun]:
    """The pods of a JobSet, with addresses, a `tfdist` on their PATH, and a volume for all claims."""
    run_id = uuid.uuid4().hex[:8]
    hub = f"tfdist-{run_id}-hub"
    set_name = document["metadata"]["name"]
    names = [
        f"{set_name}-{job['name']}-0-{index}"
        for job in document["spec"]["replicatedJobs"]
        for index in range(job["template"]["spec"]["parallelism"])
    ]
    hosts = {
        name: NetHost(f"p{number}", f"tfdist-{run_id}-p{number}", f"10.77.0.{number}", hub, folder)
        for number, name in enumerate(names, start=1)
    }
    (folder / "volume").mkdir()
    (folder / "bin").mkdir()
    program = folder / "bin" / "tfdist"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tfdist.cli "$@"\n')
    program.chmod(0o755)
    run = JobSetRun(document, folder, hosts)
    try:
        create_hub(hub)
        for host in hosts.values():
            connect(host)
        yield run
    finally:
        for pod in run.pods.values():
            pod.kill()
        for namespace in (*(host.namespace for host in hosts.values()), hub):
            remove(namespace)


def missing() -> str:
    """Why this machine cannot run pods; empty if it can."""
    tools = [tool for tool in ("unshare", "chroot", "hostname") if shutil.which(tool, path=SYSTEM_PATH) is None]
    return f"not installed: {', '.join(tools)}" if tools else ""
