"""Every command line of the README, the docs and the help texts, as printed. Hosts and schedulers are played.

Commands that train or measure run with --dry-run, which connects to their hosts and plans everything.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.compare.benches import save_bench
from tfdist.cli.command import SENTENCES, run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REFUSED = {
    "stacks ": "no stacks: it has ended",
    "--suite cpu --export": "a dry run measures nothing",
    "logical_gpus": "cuts one GPU, and 0 GPUs can be used",
    "NCCL_HOSTID": "--communication nccl needs GPUs, and none was found",
    "--resume last": "has trained 20 of 20 steps",
    "--resume last --": "ran the built-in training",
    "--preset reference": "is not prepared in",
    "--transport shell": "(not resolved)",
    "--bundle": "there is no terminal to ask on",
}
"""What is true of this machine and not of the reader's: part of a command line -> part of the message."""
DRY = ("launch", "bench", "tune", "collectives")
NOT_A_COMMAND = ("again:", "exec", "kubernetes[", "folder", "records.jsonl", "then")
"""First words of lines that show output, a script or a file."""
SSH = """#!/bin/sh
# Every host is this machine. As ssh does, it joins the words of the command for a shell.
case " $* " in *" -G "*) echo "hostname 127.0.0.1"; exit ;; esac
while :; do
  case "$1" in -o|-p|-i) shift 2 ;; -*) shift ;; *) shift; break ;; esac
done
exec sh -c "$*"
"""
RUN_THE_REST = """#!/bin/sh
# Options and the host's name come before the command: `sh`, a Python, or what a shell is to parse.
while [ "$1" ] && [ "$1" != -- ]; do
  case "$1" in h1|h2|pod*|vm*) shift; break ;; esac
  shift
done
[ "$1" = -- ] && shift
case "$1" in --command=*) exec sh -c "${1#--command=}" ;; esac
[ $# = 1 ] && exec sh -c "$1"
exec "$@"
"""
CONTAINER = """#!/bin/sh
shift 2
exec "$@"
"""
SLURM = """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
exec "$@"
"""


def command_lines(text):
    """The lines of a text in which tfdist is run, in words; what follows in the shell is left out."""
    for line in re.sub(r" *\\ *\n *", " ", text).splitlines():
        if not re.match(r" {2,}\S", line) or " tfdist " not in line or line.split()[0].startswith(NOT_A_COMMAND):
            continue
        before, _, rest = line.partition("tfdist ")
        if before.strip() and not re.match(r"\s*(srun|salloc|TF_CONFIG=|run:|cd )", before):
            continue
        words = shlex.shlex(rest.replace("$(date -u +%Y%m%dT%H%M%SZ)", "today"), posix=True, punctuation_chars="|;<>&)")
        words.wordchars += "{}[]:=,.@%+^!"
        words.whitespace_split, words.commenters = True, "#"
        found = list(words)
        end = next((at for at, word in enumerate(found) if word in ("|", ">", ";", "&&", ")")), len(found))
        yield tuple(found[:end])


def documented():
    lines = dict.fromkeys(line for page in PAGES for line in command_lines(page.read_text(encoding="utf-8")))
    return list(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the command lines name: programs, hosts, benches and a run that has saved checkpoints."""
    folder = tmp_path_factory.mktemp("it's new")
    for name, text in (
        ("train.py", "import tfdist.measure"),
        ("tf_cnn_benchmarks.py", ""),
        ("pods.txt", "pod1 addr=127.0.0.2\npod2 addr=127.0.0.3\n"),
        ("vms.txt", "vm1 addr=127.0.0.2\nvm2 addr=127.0.0.3\n"),
        ("hosts.txt", "h1\nh2\n"),
    ):
        (folder / name).write_text(text)
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (
        ("ssh", SSH),
        ("kubectl", RUN_THE_REST),
        ("gcloud", RUN_THE_REST),
        ("srun", SLURM),
        ("apptainer", CONTAINER),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for day, name in enumerate(
        ("before", "after", "bench_results/before", "bench_results/after", "results/1", "results/2", "results/3"), 1
    ):
        save_bench(folder / name, day=day, seed=day)
    for name in (
        "bench_results/2-cpu",
        "bench_results/3-cpu",
        "bench_results/20260101T120000Z-gpu",
        "nightly/1",
        "nightly/2",
        "nightly/3",
        "base",
        "new",
        "first-bench",
    ):
        shutil.copytree(folder / "before", folder / name)
    shutil.copytree(ROOT / "bench_results" / "20261124T102831Z-cpu", folder / "bench_results" / "20260101T120000Z-cpu")
    shutil.copytree(ROOT / "bench_results" / "classic", folder / "bench_results" / "20260101T120000Z-knobs")
    shutil.copytree(ROOT / "bench_results" / "prediction" / "fitted", folder / "two-hosts")
    shutil.copy(ROOT / "bench" / "suites" / "knobs.toml", folder / "candidates.toml")
    shutil.copy(ROOT / "bench" / "suites" / "smoke.toml", folder / "my.toml")
    (folder / "job.toml").write_text("strategy = 'multiworker'\npreset = 'smoke'\n")
    shutil.copytree(ROOT / "bench_results" / "collectives-2-hosts-1gbit", folder / "sweep")
    shutil.copytree(folder / "sweep", folder / "bench_results" / "20260101T120000Z-collectives")
    commit = "git -c user.name=a -c user.email=a@b commit -q -m x"
    for command in (
        "git init -q",
        "git add train.py",
        commit,
        f"{commit} --allow-empty",
        "git update-ref refs/remotes/origin/main HEAD~1",
    ):
        subprocess.run(command.split(), cwd=folder, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        training = "--strategy multiworker --preset smoke --model tiny --dataset digits --steps 20 --checkpoint-every 10 --name worker-1"
        assert run(["launch", *training.split(), "--quiet", "--set", "warmup_steps=2"]) == 0
    (saved,) = (folder / "runs").iterdir()
    shutil.copytree(saved, folder / "runs" / "20260101T120000Z-launch")
    return folder


def prepared(words, folder):
    """The words, with the paths of pods and shared disks in this folder, and --dry-run for what would take long."""
    places = {
        "/tfdist/training/runs": "runs",
        "/tfdist/training/model": "model",
        "/shared/ckpt": "ckpt",
        "/data/runs": "runs",
    }
    checkpoints = next((folder / "runs").glob("*-worker-1")) / "checkpoints"
    places |= {
        "/tfdist/training/checkpoints": checkpoints,
        "/shared/checkpoints": checkpoints,
        "$GITHUB_BASE_REF": "main",
    }
    found = []
    for word in words:
        for place, here in places.items():
            word = word.replace(place, str(here))
        matches = []
        if "*" in word and "/" in word:
            matches = sorted(path.relative_to(folder) for path in folder.glob(word))
        found += [*map(str, matches)] or [word]
    found = [word for word in found if word not in ("...", "[--", "COMMAND]", "--detach", "-d")]
    if "--burn" in found:
        found[found.index("--burn") + 1] = "1s"
    return [found[0], "--dry-run", *found[1:]] if found[0] in DRY else found


def works(line, folder, monkeypatch, capfd):
    words = prepared(line, folder)
    text = " ".join(words)
    if "hosts" in text.replace("_hosts", "") or "--transport" in words:
        monkeypatch.setenv("TFDIST_PYTHON", sys.executable)
    if "srun" in words:
        monkeypatch.setenv("SLURM_JOB_NODELIST", "localhost")
    if "tf-config" in words[1:]:
        monkeypatch.setenv(
            "TF_CONFIG", '{"cluster": {"worker": ["h1:1", "h2:1"]}, "task": {"type": "worker", "index": 0}}'
        )
    for out in ("both", "comparison", "history", "prediction", "today", "model", "digits-model"):
        shutil.rmtree(folder / out, ignore_errors=True)
    if words[0] in DRY and "--out" in words:
        words[words.index("--out") + 1] += "-again"
    code = run(words)
    for name in ("TFDIST_PYTHON", "SLURM_JOB_NODELIST", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    _, err = capfd.readouterr()
    if any(part in text and sentence in err for part, sentence in REFUSED.items()):
        return True, err
    return code in {"doctor": (0, 69), "check": (0, 1)}.get(words[0], (0,)), err


@pytest.fixture
def _played(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    for name in [name for name in os.environ if name.startswith(("TFDIST_", "SLURM_", "TF_CONFIG"))]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_played")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.thorough if "--burn" in line else (), id=" ".join(line))
        for line in documented()
    ],
)
def test_a_documented_command_works(line, folder, monkeypatch, capfd):
    succeeded, err = works(line, folder, monkeypatch, capfd)
    assert succeeded, err


@pytest.mark.usefixtures("_played")
@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=pytest.mark.thorough if each == "export" else ()) for each in SENTENCES],  # it trains
)
def test_the_examples_of_a_help_work(command, folder, monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "200")
    assert run([command, "--help"]) == 0
    lines = set(command_lines(capfd.readouterr().out))
    assert lines
    wrong = {
        line: err
        for line in lines - {*documented()}
        for succeeded, err in [works(line, folder, monkeypatch, capfd)]
        if not succeeded
    }
    assert wrong == {}
