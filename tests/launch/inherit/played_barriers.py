"""Runs `launch --inherit` in one process: for each line of stdin, a JSON object of variables of the environment."""

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tests.launch.agents.played_launches import peak_kib
from tfdist.cli.command import run
from tfdist.launch.inherit import rendezvous
from tfdist.launch.text import has_controls

rendezvous.RETRY_S = 0.01  # a session has many connections of a peer to its leader
rendezvous.REPORT_S = 0.0  # each text that is missing is printed


def result_of(env: Mapping[str, str], folder: Path) -> dict[str, object]:
    """Launch one task of the cluster in these variables."""
    os.environ.update(env)
    errors: list[str] = []
    threading.excepthook = lambda raised: errors.append("".join(traceback.format_exception(raised.exc_value)))
    code, started = None, time.process_time()
    out = (folder / "out").open("w", encoding="utf-8", errors="surrogateescape")
    with out, redirect_stdout(out), redirect_stderr(out):
        try:
            code = run(["launch", "--inherit", "tf-config", "--runs-dir", str(folder / "runs"), "--", "true"])
        except BaseException:
            errors.append(traceback.format_exc())
    shown = (folder / "out").read_text(encoding="utf-8", errors="surrogateescape")
    return {
        "exit_code": code,
        "cpu_s": time.process_time() - started,
        "peak_kib": peak_kib(),
        "errors": errors,
        "has_controls": has_controls(shown),
        "outcomes": len(list(folder.glob("runs/*/outcome.json"))),
        "shown": shown[-5000:].encode(errors="replace").decode(),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(result_of(json.loads(line), Path(name))), flush=True)
