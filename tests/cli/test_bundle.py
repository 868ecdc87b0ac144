"""`tfdist doctor --bundle`: archives of real runs and of benches."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tfdist.cli.command import run

pytestmark = pytest.mark.usefixtures("odd_folder")

SECRETS = ("correct-horse", "battery-staple", "hunter-twenty-two", "of-the-output")


class Terminal(io.StringIO):
    """The standard input of a terminal."""

    def isatty(self):
        return True


def keep(name="20260101T120000Z-launch"):
    """The folder of a run."""
    folder = Path("runs", name)
    folder.mkdir(parents=True)
    (folder / "outcome.json").write_text('{"format": 1, "status": "failed", "exit_code": 3}')
    return folder


def archives():
    return sorted(map(str, Path().glob("*.tar.gz")))


def contents(path):
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read().decode() for name in archive.getnames()}


@pytest.mark.slow
def test_no_secret_of_a_run_is_in_its_archive(monkeypatch, capsys):
    monkeypatch.setenv("MY_API_KEY", SECRETS[0])
    monkeypatch.setenv("TF_SECRET_OF_MINE", "with blanks and " + SECRETS[3])
    script = f"echo {SECRETS[0]} from $HOME; echo password={SECRETS[3]} >&2; echo $DB_PASSWORD | wc -c; exit 3"
    options = ["--strategy", "one-device", "-x", f"DB_PASSWORD={SECRETS[1]}", "--name", "mine"]
    assert run(["launch", *options, "--", "sh", "-c", script, "--token", SECRETS[2]]) == 3
    (log,) = Path("runs").glob("*/attempt-0/worker-0/stdout.log")
    assert SECRETS[0] in log.read_text()
    capsys.readouterr()
    assert run(["doctor", "--bundle", "last", "--yes"]) == 0
    out, _ = capsys.readouterr()
    (path,) = archives()
    folder = log.parents[2].name
    assert path == f"tfdist-{folder}.tar.gz"
    texts = contents(path)
    everything = json.dumps(texts)
    assert [secret for secret in SECRETS if secret in everything] == []
    assert f"{Path.home()}/" not in everything
    assert texts[f"tfdist-{folder}/attempt-0/worker-0/stdout.log"].startswith("*** from ~\n")
    assert "password=***" in texts[f"tfdist-{folder}/attempt-0/worker-0/stderr.log"]
    assert json.loads(texts[f"tfdist-{folder}/outcome.json"])["exit_code"] == 3
    named = {name.partition("/")[2] for name in texts}
    assert {"doctor.txt", "events.jsonl", "commands.txt", "cluster.json", "hosts.json"} <= named
    listed = {line.split()[0] for line in out.splitlines()[1:-1]}
    assert listed == named
    assert f"wrote {path} (" in out


def test_the_archive_says_what_doctor_finds_now_with_versions_and_variables(monkeypatch, capsys):
    keep()
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert run(["doctor", "--bundle", "launch", "--json", "-y"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    text = contents(found["bundle"])["tfdist-20260101T120000Z-launch/doctor.txt"]
    assert "\nNCCL_DEBUG=INFO\n" in text
    assert "\nnumpy==" in text
    assert "ok       Python" in text
    assert "\x1b" not in text
    assert found["bytes"] == Path(found["bundle"]).stat().st_size
    assert "doctor.txt" in err


@pytest.mark.slow
def test_the_folder_of_a_bench_is_packed_beside_an_earlier_archive_of_it(capsys):
    bench = sorted((Path(__file__).parents[2] / "bench_results").glob("*-cpu"))[-1]
    for _ in range(2):
        assert run(["doctor", "--bundle", str(bench), "--yes"]) == 0
    first, second = f"tfdist-{bench.name}", f"tfdist-{bench.name}-2"
    assert archives() == [f"{second}.tar.gz", f"{first}.tar.gz"]
    names = {"doctor.txt", "bench.json", "turns.jsonl", "records.jsonl", "report.md"}
    assert set(contents(f"{second}.tar.gz")) == {f"{second}/{name}" for name in names}


@pytest.mark.parametrize(("answer", "number"), [("y\n", 1), ("yes\n", 1), ("n\n", 0), ("\n", 0), ("", 0)])
def test_a_terminal_is_asked_after_the_list(answer, number, monkeypatch, capsys):
    keep()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert run(["doctor", "--bundle", "last"]) == 0
    out, _ = capsys.readouterr()
    assert "outcome.json" in out.partition("write these 2 files (")[0]
    assert len(archives()) == number
    assert ("nothing was written" in out) == (not number)


def test_a_terminal_gets_whole_names_of_files(monkeypatch, capsys):
    name = "attempt-0/parameter-server-0/stdout-of-the-task-that-failed.log"
    log = keep() / name
    log.parent.mkdir(parents=True)
    log.write_text("lost")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run(["doctor", "--bundle", "last"]) == 0
    listed = capsys.readouterr().out.partition("write these")[0].splitlines()
    assert listed[0].split() == ["file", "size"]
    assert (name in listed) or not print(listed)


def test_an_interrupt_at_the_question_writes_nothing(monkeypatch, capsys):
    class Interrupted(Terminal):
        def readline(self, *_):
            raise KeyboardInterrupt

    keep()
    monkeypatch.setattr("sys.stdin", Interrupted())
    assert run(["doctor", "--bundle", "last"]) == 130
    assert archives() == []


def test_without_a_terminal_yes_is_needed(monkeypatch, capsys):
    keep()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(["doctor", "--bundle", "last"]) == 2
    message = "tfdist: --bundle: there is no terminal to ask on; add --yes to write these files\n"
    assert capsys.readouterr().err.endswith(message)
    assert archives() == []


REFUSED = [
    (["--yes"], "--yes: has no effect without --bundle; omit it"),
    (["--bundle", "last"], "no runs in runs: start one with 'tfdist launch', or give --runs-dir or the path of a run"),
    (["--bundle", "nowhere/x"], "--bundle nowhere/x: not the folder of a run; 'tfdist runs' lists the runs"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=str)
def test_wrong_input_is_refused_before_anything_is_checked(options, message, capsys):
    assert run(["doctor", *options]) == 2
    assert capsys.readouterr().err == f"tfdist: {message}\n"


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, capsys):
    folder = keep().resolve()
    monkeypatch.chdir("/proc")
    assert run(["doctor", "--bundle", str(folder), "--yes"]) == 1
    assert "check the path and its permissions" in capsys.readouterr().err
