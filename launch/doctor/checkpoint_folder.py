"""A check before tasks start: the folder of checkpoints can be written, and is the same on all hosts that need it."""

from tfdist.launch.agent_program.shared_folder import NOT_SHARED
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.messages import CheckFolder, FolderAction, FolderChecked
from tfdist.launch.doctor.agent_requests import new_token
from tfdist.launch.errors import ExitCode, Problem, raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job


def check_checkpoint_folder(job: Job, fleet: Fleet) -> None:
    """Have one host write a file there and the others find it. The folder is created if it does not exist.

    Raises:
        TfdistError: the folder cannot be written, or is another one on some host.
    """
    hosts = job.checkpoint_hosts
    if not hosts:
        return
    token = new_token()
    try:
        _check(fleet, job, hosts[:1], token, "write")
        _check(fleet, job, hosts[1:], token, "read")
    finally:
        _ask(fleet, hosts[:1], job.checkpoint_dir, token, "remove")


def _check(fleet: Fleet, job: Job, hosts: tuple[Host, ...], token: str, action: FolderAction) -> None:
    reasons = _ask(fleet, hosts, job.checkpoint_dir, token, action)
    raise_problems(fleet.lost.values())
    raise_problems((_problem(host, job, reason) for host, reason in reasons.items() if reason), ExitCode.USAGE)


def _ask(fleet: Fleet, hosts: tuple[Host, ...], path: str, token: str, action: FolderAction) -> dict[Host, str]:
    """Why the action failed on each host; empty if it did not."""
    requests = {host: CheckFolder(path, token, action) for host in hosts}
    answers = fleet.ask(requests, f"answer about the checkpoint folder {path}", fleet.policy.start_timeout_s)
    return {host: answer.reason for host, answer in answers.items() if isinstance(answer, FolderChecked)}


def _problem(host: Host, job: Job, reason: str) -> Problem:
    if reason == NOT_SHARED:
        first = job.checkpoint_hosts[0].name
        fix = "choose a folder on a disk that all hosts share, with --checkpoint-dir"
        return Problem(f"the checkpoint folder {job.checkpoint_dir} is not that of {first}", fix, host.name)
    fix = "choose another one with --checkpoint-dir"
    return Problem(f"the checkpoint folder {job.checkpoint_dir} {reason}", fix, host.name)
