"""Runs the command line in one process: for each line of stdin, the path of a session for `played_agent.py`."""

import json
import shlex
import sys
import tempfile
import threading
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tfdist.cli.command import run
from tfdist.launch.text import has_controls

AGENT = Path(__file__).with_name("played_agent.py")


def result_of(session: str, folder: Path) -> dict[str, object]:
    """Launch a job on a host that plays the session, and show the run in all ways."""
    transport = f"exec:{shlex.join([sys.executable, '-S', '-I', str(AGENT), session])} {{host}}"
    runs = ["--runs-dir", str(folder / "runs")]
    launch = ["launch", *runs, "--hosts", "127.0.0.2", "--transport", transport, "--verbose", "--", "true"]
    shows = [["runs", *runs], ["runs", "--json", *runs], ["logs", "last", "--follow", *runs], ["logs", "last", *runs]]
    errors: list[str] = []
    threading.excepthook = lambda raised: errors.append("".join(traceback.format_exception(raised.exc_value)))
    code, started = None, time.process_time()
    out = (folder / "out").open("w", encoding="utf-8", errors="surrogateescape")
    with out, redirect_stdout(out), redirect_stderr(out):
        try:
            code = run(launch)
            cpu_s = time.process_time() - started
            for arguments in shows:
                run(arguments)
        except BaseException:
            errors.append(traceback.format_exc())
            cpu_s = time.process_time() - started
    shown = (folder / "out").read_text(encoding="utf-8", errors="surrogateescape")
    return {
        "exit_code": code,
        "cpu_s": cpu_s,
        "peak_kib": peak_kib(),
        "errors": errors,
        "has_controls": has_controls(shown),
        "shown": shown[-2000:].encode(errors="replace").decode(),
    }


def peak_kib() -> int:
    """Of this process: VmHWM. Unlike ru_maxrss it does not count what our parent had."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(result_of(line.rstrip("\n"), Path(name))), flush=True)
