"""Folders of runs and benches with any files: every command ends with a sentence, in little memory and time."""

import copy
import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.cli.checkpoint_files import SPEC, save_checkpoint
from tfdist.cli.command import run
from tfdist.jobs.checkpoint_source import SavedSpec
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.rundir import RunDir
from tfdist.models.checkpoints import Checkpointing

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "bench_results"
FOLDERS_OF_A_PROCESS = 250
RUN = "20260101T120000Z-launch"
CODES = {0, 1, 2, 3, 4}
"""Exit codes of these commands."""
MORE_CPU_S = 3
"""CPU time that a command may take beyond that for the ordinary folder. The longest took 0.7 to 1.3 s, as fast as the
machine was.
"""
TEXTS = [
    "", "\x1b[2J\x1b]0;x\x07", "\x9b31m", "\u202etxt", "\udc80", "\ud800", "[/red]", "$\\frac{$", "=1+1", "a\nb", "\0",
    "../../x", "/dev/zero", "x" * 100_000, "worker-0", "ok", "refused", "2026-01-01T00:00:00+00:00", "arm", "format",
]  # fmt: skip
NUMBERS = ["0", "1", "-1", "0.5", "1e999", "-1e308", "1e308", "NaN", "-Infinity", str(1 << 63), "1" * 400, "1" * 5000]
OTHERS = [
    "null",
    "true",
    "[]",
    "{}",
    "[[]]",
    '{"a": 1}',
    "[1, null]",
    '["x", "y"]',
    '{"worker-0": {}}',
    "[" + "[]," * 9999 + "1]",
]
DEEP = ["[" * levels + "]" * levels for levels in (40, 70, 400, 5000)]
VALUES = [*map(json.dumps, TEXTS), *NUMBERS, *OTHERS, *DEEP, '{"a":' * 900 + "1" + "}" * 900]
"""JSON."""
SPECIAL = [
    "fifo", "socket", "zero", "full", "loop", "dangling", "folder", "missing", "forbidden", "empty", "sparse",
    "values", "many", "text", "brackets",
]  # fmt: skip
"""What is in the place of a file; see `put`."""
LINES = [b"\n", b"{}\n", b"x", b"[]\n", b"\xff\n", b"\0" * 99_999, b"1\n" * 3000, b'{"arm": 1}\n']
NAMES = [
    b"a\nb",
    b"\x1b]0;x\x07",
    b"\xff\xfe",
    b"n" * 255,
    "\u202ex".encode(),
    b"attempt-0",
    b"attempt-1",
    b"-rf",
    b" ",
]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "value", "key", "cut", "line", "rename"]), st.integers(0, 1 << 32)),
    min_size=1,
    max_size=4,
)
"""Kinds of changes, and the seeds that choose the place and the value."""


def put(path: Path, what: str) -> None:
    """Put something into the place of a file."""
    if (
        what == "forbidden" and path.is_dir() and not path.is_symlink() and not os.geteuid()
    ):  # others could not remove it
        path.chmod(0)
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    links = {"zero": "/dev/zero", "full": "/dev/full", "loop": path.name, "dangling": "nowhere"}
    contents = {"forbidden": b"{}", "empty": b"", "values": b'{"a": [' + b"[]," * 2_500_000, "brackets": b"[" * 200_000}
    contents["many"] = b'{"format": 2, "arm": "a", "status": "ok", "a": [' + b"[]," * 400_000 + b"1]}"
    contents["text"] = b'{"status": "ok", "reason": "' + b"x-" * 2_000_000 + b'"}'
    if what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as dead:
            folder = os.open(path.parent, os.O_RDONLY)
            dead.bind(f"/proc/self/fd/{folder}/{path.name}"[:107])
            os.close(folder)
    elif what in links:
        path.symlink_to(links[what])
    elif what == "folder":
        path.mkdir()
        (path / "x").touch()
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif what != "missing":
        path.write_bytes(contents[what])
        path.chmod(0 if what == "forbidden" else 0o644)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a JSON value, with each of its keys."""
    found, todo = [], [value]
    while todo:
        each = todo.pop()
        keys: Iterable[Any] = ()
        if isinstance(each, dict):
            keys = list(each)
        elif isinstance(each, list):
            keys = range(len(each))
        found += [(each, key) for key in keys]
        todo += [each[key] for key in keys]
    return found


def edit(line: str, chance: Random, *, key: bool) -> str:
    """The JSON text with another value, or another key, at a place."""
    values = json.loads(line)
    choices = [(holder, name) for holder, name in places(values) if not key or isinstance(holder, dict)]
    if not choices:
        return chance.choice(VALUES)
    holder, name = chance.choice(choices)
    if key:
        holder[chance.choice(TEXTS)] = holder.pop(name)
        return json.dumps(values)
    holder[name] = "HERE IT IS"
    return json.dumps(values).replace('"HERE IT IS"', chance.choice(VALUES))


def change(folder: Path, kind: str, seed: int) -> None:
    """Change one file or folder in the folder."""
    chance = Random(seed)
    paths = sorted(path for path in folder.glob("*/**/*") if "good" not in str(path.relative_to(folder)))
    if not paths:  # nothing is left
        return
    files = [path for path in paths if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20]
    if kind == "put":
        put(chance.choice(paths), chance.choice(SPECIAL))
    elif kind == "rename":
        path = chance.choice(paths)
        target = path.parent / os.fsdecode(chance.choice(NAMES))
        if not os.path.lexists(target):
            path.rename(target)
    elif files:
        path = chance.choice([each for each in files if each.suffix.startswith(".json")] or files)
        data = path.read_bytes()
        if kind == "cut":
            path.write_bytes(data[: chance.randrange(len(data) + 1)])
        elif kind == "line":
            path.write_bytes(data + chance.choice(LINES))
        else:
            text = data.decode(errors="replace").rstrip("\n")
            lines = text.split("\n") if path.suffix == ".jsonl" else [text]
            at = chance.randrange(len(lines))
            with suppress(ValueError, RecursionError):  # no JSON any more
                lines[at] = edit(lines[at], chance, key=kind == "key")
            path.write_bytes("\n".join([*lines, ""]).encode(errors="surrogatepass"))


class Commands:
    """A process that runs commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.process, self.folders = folder / "cwd", None, 0
        self.ordinary: dict[str, list[dict[str, Any]]] = {}

    def run(self, kind: str, commands: list[list[str]]) -> list[dict[str, Any]]:
        """The results of commands in the folder."""
        assert self.process is not None
        self.process.stdin.write(
            json.dumps({"folder": str(self.folder), "commands": commands, "charts": kind == "charts"}) + "\n"
        )
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], 60)[0]:
            self.process.kill()
            self.folders = 0
            pytest.fail("it reads something that never ends, or waits")
        return json.loads(self.process.stdout.readline())

    def restart(self) -> None:
        """Start another process. As root it may not read everything either."""
        self.close()
        drop = "-dac_override,-dac_read_search"
        prefix = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if not os.geteuid() else []
        command = [*prefix, sys.executable, "-m", "tests.cli.shown_folders"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.communicate(timeout=30)


def few_lines(source: Path, target: Path, arms: set[str]) -> None:
    """A bench with the first turns of some of the arms in `source`."""
    target.mkdir(parents=True)
    values = json.loads((source / "bench.json").read_text())
    values["suite"]["arms"] = [arm for arm in values["suite"]["arms"] if arm["name"] in arms]
    values["plan"] = [each for each in values["plan"] if each["arm"] in arms]
    save_json(target / "bench.json", values)
    for name in ("records.jsonl", "turns.jsonl"):
        lines = [line for line in (source / name).read_text().splitlines() if json.loads(line)["arm"] in arms]
        (target / name).write_text("".join(f"{line}\n" for line in lines[:12]))


def save_runs(folder: Path) -> None:
    """Two runs and a bench; one of the runs has records, checkpoints and steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("TF_CONFIG", raising=False)
        assert run(["launch", "--strategy", "one-device", "--name", "good", "--", "echo", "hello"]) == 0
        (good,) = Path("runs").iterdir()
        good.rename("runs/20260102T120000Z-good")
        shutil.copytree("runs/20260102T120000Z-good", f"runs/{RUN}")
    run_dir = RunDir(folder / "runs" / RUN)
    save_checkpoint(run_dir.checkpoints, 50)
    save_json(run_dir.spec, SavedSpec(SPEC, (), Checkpointing("checkpoints")).to_json())
    message = {"kind": "Event", "task": "worker-0", "attempt": 0, "time": 1.0}
    step = {"event": "step", "step": 50, "steps": 50, "images_per_s": 2.0, "loss": 1.0}
    with run_dir.events.open("a") as file:
        file.writelines(
            json.dumps({**message, "event": event}) + "\n" for event in (step, {"event": "checkpoint", "step": 50})
        )
    lines = (RESULTS / "classic" / "records.jsonl").read_text().splitlines()
    run_dir.records.write_text(lines[0] + "\n")
    few_lines(RESULTS / "compare" / "base", folder / "bench_results" / "mine", {"one-device"})


def save_benches(folder: Path) -> None:
    """Two benches of the same arms."""
    names = [
        arm["name"] for arm in json.loads((RESULTS / "compare" / "base" / "bench.json").read_text())["suite"]["arms"]
    ]
    for target, source in (("hostile", "base"), ("good", "again"), ("good-2", "burned")):
        few_lines(RESULTS / "compare" / source, folder / target, set(names[:2]))


KINDS = {"runs": save_runs, "compare": save_benches, "report": save_benches, "charts": save_benches}
COMMANDS = {
    "runs": [["runs"], ["runs", "--json"], ["runs", RUN], ["logs", RUN], ["export", RUN, "model"]],
    "compare": [["compare", "hostile", "good"], ["compare", "hostile", "good", "good-2", "--json"]],
    "report": [["report", "hostile"], ["report", "hostile", "good", "--out", "both", "--json"]],
    "charts": [["report", "hostile"]],
}


class Folders:
    """The ordinary folders of each kind, and the process that shows copies with changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commands = folder, Commands(folder)
        for kind, save in KINDS.items():
            (folder / kind).mkdir()
            save(folder / kind)

    def show(self, kind: str, changes: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        """The results of the commands for a copy with these changes."""
        if not self.commands.folders % FOLDERS_OF_A_PROCESS:
            self.commands.restart()
            self.commands.ordinary = {}
        self.commands.folders += 1
        if changes and kind not in self.commands.ordinary:
            self.show(kind, [])  # it loads what it needs
            self.commands.ordinary[kind] = self.show(kind, [])
            assert [each["errors"] for each in self.commands.ordinary[kind]] == [[]] * len(COMMANDS[kind])
        shutil.rmtree(self.commands.folder, ignore_errors=True)
        shutil.copytree(self.folder / kind, self.commands.folder)
        for each in changes:
            change(self.commands.folder, *each)
        return self.commands.run(kind, COMMANDS[kind])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folders = Folders(tmp_path_factory.mktemp("it's; new"))
    yield folders
    folders.commands.close()


def check(folders: Folders, kind: str, changes: list[tuple[Any, ...]]) -> None:
    results = folders.show(kind, copy.deepcopy(changes))
    for arguments, result, ordinary in zip(COMMANDS[kind], results, folders.commands.ordinary[kind], strict=True):
        assert result["errors"] == [], arguments
        assert not result["has_controls"], (arguments, result["shown"])
        assert result["exit_code"] in CODES, (arguments, result["shown"])
        assert result["kib"] - ordinary["kib"] < 150_000, (arguments, result["kib"], ordinary["kib"])
        assert result["cpu_s"] - ordinary["cpu_s"] < MORE_CPU_S, (arguments, result["cpu_s"], ordinary["cpu_s"])
    if kind == "runs":
        assert "20260102T120000Z-good" in results[0]["shown"]
        assert "20260102T120000Z-good" in results[1]["shown"]


def fuzz(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@fuzz(100)
@given(changes=CHANGES)
def test_no_folder_of_a_run_ends_a_command(folders: Folders, changes: list[tuple[Any, ...]]) -> None:
    check(folders, "runs", changes)


@fuzz(30)
@given(changes=CHANGES)
def test_no_folder_of_a_bench_ends_a_comparison(folders: Folders, changes: list[tuple[Any, ...]]) -> None:
    check(folders, "compare", changes)


@pytest.mark.thorough
@fuzz(5)
@given(changes=CHANGES)
def test_no_folder_of_a_bench_ends_a_report(folders: Folders, changes: list[tuple[Any, ...]]) -> None:
    check(folders, "report", changes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "kind", "number"),
    [*((part, "runs", 1500) for part in range(6)), (6, "compare", 900), (7, "report", 90), (8, "charts", 10)],
)
def test_ten_thousand_folders_do_not_either(folders: Folders, part: int, kind: str, number: int) -> None:
    @seed(part)
    @fuzz(number)
    @given(CHANGES)
    def show(changes: list[tuple[Any, ...]]) -> None:
        check(folders, kind, changes)

    show()
