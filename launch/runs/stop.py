"""Requests to the launcher of a run: stop it, and list its running tasks."""

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.runs.launcher import Launcher, read_launcher, request, terminate
from tfdist.launch.runs.rundir import RunDir


def request_stop(run_dir: RunDir) -> None:
    """Send a stop request. The tasks get the grace period; after a second request the launcher kills them.

    Raises:
        TfdistError: the launcher cannot be reached.
    """
    try:
        request(run_dir, "stop")
    except TimeoutError:
        launcher = read_launcher(run_dir)
        pid = launcher.pid if launcher else "PID"
        raise TfdistError(
            f"the launcher of {run_dir.path} does not answer: if it is suspended, continue it with 'kill -CONT {pid}'",
            ExitCode.FAILED,
        ) from None
    except PermissionError:
        raise TfdistError(f"{run_dir.control}: not your run; ask its owner to stop it", ExitCode.FAILED) from None
    except OSError:  # it has not opened its socket yet, could not, or has just ended
        _terminate(run_dir, read_launcher(run_dir))


def running_tasks(run_dir: RunDir) -> tuple[str, ...]:
    """The tasks that still run, as far as the launcher answers."""
    try:
        return request(run_dir, "status").running
    except OSError:
        return ()


def _terminate(run_dir: RunDir, launcher: Launcher | None) -> None:
    if launcher is None or not launcher.alive or run_dir.outcome.exists():
        return
    if not launcher.local:
        raise TfdistError(
            f"the launcher of {run_dir.path} runs on {launcher.host}: use 'tfdist stop' on that host", ExitCode.FAILED
        )
    try:
        terminate(run_dir, launcher)
    except ProcessLookupError:
        return
    except PermissionError:
        raise TfdistError(f"{run_dir.path}: not your run; ask its owner to stop it", ExitCode.FAILED) from None
