"""Time until tasks can start on other hosts: agents connected, hosts checked, ports reserved and dialled."""

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.table import Table

from lab.commands import NO_OP, TFDIST, timed
from lab.private_sshd import NAMES

ROUNDS = 3
MANY = 128
AIM_TWO_S = 1.5
"""Aim for two hosts, in addition to one `ssh host true`."""
AIM_MANY_S = 10.0
STAND_IN = """\
#!/bin/sh
for word; do
    if [ "$word" = -G ]; then echo "hostname 127.0.0.1"; exit; fi
    last=$word
done
exec sh -c "$last"
"""
"""Replaces ssh: every host is this machine, and connecting takes no time."""


def hosts_ready(folder: Path, ssh: Path | None) -> Table:
    """Seconds from the start of the command to the first task, and to the end of the command."""
    table = Table("hosts", "ready s", "whole s", "ssh host true s", "aim", box=None, pad_edge=False)
    runs = folder / "runs"
    if ssh is not None:
        turns = [(timed([str(ssh), NAMES[0], "true"])[0], ready(ssh, NAMES, runs)) for _ in range(ROUNDS + 1)][1:]
        ssh_s, first, whole = (median(column) for column in zip(*((b, *ours) for b, ours in turns), strict=True))
        aim = f"{AIM_TWO_S} s more than ssh: {first - ssh_s:.2f}"
        table.add_row("2 through ssh", f"{first:.2f}", f"{whole:.2f}", f"{ssh_s:.2f}", aim)
    stand_in = folder / "stand-in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o700)
    first, whole = ready(stand_in, [f"n[01-{MANY}]"], runs)
    table.add_row(f"{MANY} on this machine, no ssh", f"{first:.2f}", f"{whole:.2f}", "", f"{AIM_MANY_S:g} s")
    return table


def ready(ssh: Path, hosts: Sequence[str], runs: Path) -> tuple[float, float]:
    """Seconds until the first no-op task was started, and until the command has exited."""
    options = ["--hosts", ",".join(hosts), "--ssh", str(ssh), "--runs-dir", str(runs)]
    start = time.time()
    older = set(runs.glob("*"))
    argv = [TFDIST, "launch", "--strategy", "multiworker", *options, "--quiet", "--", *NO_OP]
    subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    end = time.time()
    (run,) = set(runs.glob("*")) - older
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return min(event["time"] for event in events if event["kind"] == "Started") - start, end - start
