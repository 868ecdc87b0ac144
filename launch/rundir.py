"""Every path of a run's folder, spelled once."""

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tfdist.launch.errors import TfdistError


@dataclass(frozen=True)
class RunDir:
    """The folder of one run."""

    path: Path

    @property
    def spec(self) -> Path:
        """What is trained, or the user's own command."""
        return self.path / "spec.json"

    @property
    def cluster(self) -> Path:
        """Each task's host, address, cores and TF_CONFIG."""
        return self.path / "cluster.json"

    @property
    def hosts(self) -> Path:
        """What each host's agent said of it."""
        return self.path / "hosts.json"

    @property
    def commands(self) -> Path:
        """The command that made this run, then each task's."""
        return self.path / "commands.txt"

    @property
    def events(self) -> Path:
        """Everything that happened but output, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def outcome(self) -> Path:
        """How it ended."""
        return self.path / "outcome.json"

    @property
    def records(self) -> Path:
        """The folder of measurements, as `tfdist report` reads them."""
        return self.path / "records"

    def log(self, task: str, stream: str) -> Path:
        """A task's `stdout` or `stderr`, byte for byte."""
        return self.path / "attempt-0" / task / f"{stream}.log"


def create_run_dir(runs_dir: Path, name: str, now: datetime | None = None) -> RunDir:
    """A new folder `<UTC time>-<name>` below `runs_dir`; a second run in the same second gets a number.

    Raises:
        TfdistError: it cannot be written there.
    """
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    base = f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-.')[:100] or 'run'}"
    for number in range(1, 1000):
        path = runs_dir / (base if number == 1 else f"{base}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not runs_dir.is_dir():
                raise TfdistError(f"the runs folder {str(runs_dir)!r} is a file: choose another --runs-dir") from None
            continue
        except OSError as error:
            raise TfdistError(
                f"cannot write to the runs folder {str(runs_dir)!r} ({error.strerror}): choose another --runs-dir"
            ) from None
        return RunDir(path)
    raise TfdistError(f"a thousand runs named {base!r} in one second: choose another --name")
