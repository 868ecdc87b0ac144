"""Runs command lines in one process: for each line of stdin, commands as JSON, in a folder."""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tfdist.bench.report import write
from tfdist.bench.report.figures.pictures import to_png, to_svg
from tfdist.bench.report.html import render
from tfdist.cli import export
from tfdist.cli.command import run
from tfdist.launch.text import has_controls


def result_of(arguments: list[str], out: Path) -> dict[str, Any]:
    """Run one command, and measure it."""
    errors: list[str] = []
    threading.excepthook = lambda raised: errors.append("".join(traceback.format_exception(raised.exc_value)))
    code, before, started = None, reset_peak(), time.process_time()
    stream = out.open("w", encoding="utf-8", errors="backslashreplace")  # as main() opens stdout
    with stream, redirect_stdout(stream), redirect_stderr(stream):
        try:
            code = run(arguments)
        except BaseException:
            errors.append(traceback.format_exc())
    shown = out.read_text(encoding="utf-8")
    return {
        "exit_code": code,
        "cpu_s": time.process_time() - started,
        "kib": kib("VmHWM") - before,
        "errors": errors,
        "has_controls": has_controls(shown),
        "shown": shown[-30_000:],
    }


def reset_peak() -> int:
    """Let VmHWM count from here; returns the memory of this process, KiB."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return kib("VmRSS")


def kib(name: str) -> int:
    """A value of this process from /proc/self/status (proc(5))."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def no_tensorflow(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
    """In place of the process that exports: it finds the checkpoint damaged."""
    return subprocess.CompletedProcess(command, 65, stderr="tfdist: damaged")


if __name__ == "__main__":
    export.subprocess.run = no_tensorflow  # type: ignore[attr-defined]
    for line in sys.stdin:  # charts take Matplotlib seconds
        order = json.loads(line)
        write.to_png = to_png if order["charts"] else lambda *_, **__: b"picture"  # type: ignore[assignment]
        render.to_svg = to_svg if order["charts"] else lambda *_, **__: "<svg></svg>"  # type: ignore[assignment]
        os.chdir(order["folder"])
        print(json.dumps([result_of(arguments, Path("..", "out")) for arguments in order["commands"]]), flush=True)
