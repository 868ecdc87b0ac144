"""The whole command, with real agents on this machine; other hosts are behind a stand-in for ssh."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.screens import HOSTS, broken
from tfdist.cli.command import run
from tfdist.cli.doctor import merge_hosts, row_lines
from tfdist.cli.show.steps import Steps
from tfdist.launch.agents.bootstrap import agent_source
from tfdist.launch.doctor.checks import CheckResult, Verdict
from tfdist.launch.hosts.host import Host

pytestmark = pytest.mark.usefixtures("odd_folder")

ONE, OTHER = "127.0.0.2", "127.0.0.3"
"""Host names that are addresses of this machine, so that these hosts reach each other."""


@pytest.fixture
def connector(tmp_path):
    """--transport for a shell script that receives the host's name as $1 and runs the rest."""

    def make(script='shift; exec "$@"'):
        path = tmp_path / "connect.sh"
        path.write_text(script)
        return f"exec:sh {path} {{host}}"

    return make


def read_json(capsys):
    """The printed JSON; and its rows that are not ok, as (verdict, check, host)."""
    report = json.loads(capsys.readouterr().out)
    bad = [(row["verdict"], row["check"], row["host"]) for row in report["rows"] if row["verdict"] != "ok"]
    return report, bad


def failures(bad):
    return [row[1:] for row in bad if row[0] == "failed"]


def test_a_single_machine_shows_the_keras_table_with_v(capsys):
    assert run(["doctor"]) == 0
    short, _ = capsys.readouterr()
    assert run(["doctor", "-v"]) == 0
    out, _ = capsys.readouterr()
    assert f"packages  localhost  tensorflow {version('tensorflow')}" in out
    assert ("Keras 3 fit" in short, "Keras 3 fit" in out) == (False, True)
    assert out.splitlines()[-1].startswith("A job could start")


@pytest.mark.slow
def test_two_hosts_are_checked_dialled_and_measured(capsys, connector, survivors):
    assert run(["doctor", "--hosts", f"{ONE},{OTHER}", "--transport", connector(), "--json"]) == 0
    report, bad = read_json(capsys)
    assert failures(bad) == []
    assert report["can_start"] is True
    assert [(link["from"], link["to"]) for link in report["links"]] == [(ONE, OTHER), (OTHER, ONE)]
    assert all(link["bytes_per_s"] > 1e6 and 0 < link["rtt_s"] < 1 for link in report["links"])
    assert report["keras"]["multiworker"]["2 fit"] == "yes"
    assert survivors() == []


@pytest.mark.slow
def test_hosts_that_are_down_or_lost_do_not_hide_the_others(capsys, connector):
    """The stream of `frail` ends after the agent's source, as when the connection breaks."""
    length = len(agent_source(Host("frail")))
    script = f"""
name=$1; shift
test $name = down && {{ echo "it is switched off" >&2; exit 255; }}
test $name = frail || exec "$@"
head -c {length} | "$@"
"""
    hosts = f"{ONE},down,frail,{OTHER}"
    assert run(["doctor", "--hosts", hosts, "--transport", connector(script), "--json"]) == 69
    report, bad = read_json(capsys)
    assert failures(bad) == [("connection", "down"), ("connection", "frail")]
    assert "it is switched off" in report["rows"][0]["text"]
    assert report["rows"][0]["fix"]
    assert len(report["links"]) == 2


@pytest.mark.slow
def test_an_unreachable_address(capsys, connector, tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text(f"{ONE}\n{OTHER} addr=no-such-name.invalid\n")
    assert run(["doctor", "--hostfile", str(hostfile), "--transport", connector()]) == 69
    out, _ = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if line.startswith("failed")]
    assert f"{ONE}, {OTHER} cannot reach {OTHER} at no-such-name.invalid:" in line
    assert "-> " in line
    assert out.splitlines()[-1] == f"A job could not start. Failed: reachability ({OTHER})."


def test_a_busy_port_and_a_free_one(capsys):
    with socket.socket() as used:
        used.bind(("", 0))
        used.listen()
        port = used.getsockname()[1]
        assert run(["doctor", "--port", str(port), "--json"]) == 69
        assert failures(read_json(capsys)[1]) == [("ports", "localhost")]
    assert run(["doctor", "--port", str(port), "--json"]) == 0


@pytest.mark.slow
def test_missing_folders(capsys, connector):
    hosts = ["--hosts", f"localhost,{ONE}", "--transport", connector()]
    assert run(["doctor", *hosts, "--chdir", "/no/such/folder", "--json"]) == 69
    report, bad = read_json(capsys)
    assert failures(bad)[:1] == [("folder", "localhost")]
    assert ("folder", ONE) in failures(bad)
    assert any(row["check"] == "reachability" for row in report["rows"])


@pytest.mark.slow
def test_this_machine_with_a_named_python_beside_another_host_in_a_folder_below_home(
    capsys, connector, tmp_path, monkeypatch
):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    hostfile = tmp_path / "hosts"
    hostfile.write_text(f"localhost python={shlex.quote(sys.executable)}\n{ONE}\n")
    hosts = ["--hostfile", str(hostfile), "--transport", connector()]
    assert run(["doctor", *hosts, "--chdir", "~/work", "--json"]) == 0
    rows = read_json(capsys)[0]["rows"]
    assert any(row["check"] == "reachability" for row in rows)
    assert any(f"tasks run in {tmp_path / 'work'}" in row["text"] for row in rows)


def test_tf_config_in_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert run(["doctor"]) == 69
    assert "unset TF_CONFIG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "--port 70000"),
        (["--ssh", "/x"], "--ssh /x has no effect without --hosts"),
        (["--hosts", "a b"], "a b"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(arguments, words, capsys):
    assert run(["doctor", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(connector, survivors):
    silent = connector("echo hello >&2; exec sleep 60")
    command = [sys.executable, "-m", "tfdist.cli", "doctor", "--hosts", ONE, "--transport", silent]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert first == f"connecting to {ONE} ...\n"
    assert process.returncode == 130
    assert "Traceback" not in err
    assert survivors() == []


def test_the_doctor_imports_neither_tensorflow_nor_pandas():
    light = """
import sys
from tfdist.cli.command import run
assert run(["doctor"]) == 0
sys.exit(str(sorted(set(sys.modules) & {"tensorflow", "tf_keras", "keras", "pandas", "matplotlib", "numpy", "scipy"}) or ""))
"""
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True)
    assert done.stderr.strip() == ""


# --- output


def test_steps_are_shown_only_after_a_while():
    quick, slow = StringIO(), StringIO()
    with Steps(quick, patience_s=60.0) as steps:
        steps.show("one")
    assert quick.getvalue() == ""
    with Steps(slow, patience_s=0.0) as steps:
        steps.show("one")
        until = time.monotonic() + 10
        while not slow.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        steps.show("two")
    assert slow.getvalue() == "one ...\ntwo ...\n"


ROWS = st.builds(
    CheckResult,
    check=st.sampled_from(["GPUs", "reachability"]),
    host=st.sampled_from(["h1", "h1 -> h2", "a-very-long-name.of.a.host.example"]),
    verdict=st.sampled_from(Verdict),
    text=st.text("abc 1:,", min_size=1).filter(str.strip),
    fix=st.text("abc 1:,").map(str.strip),
)


def plain(line):
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


@given(st.lists(ROWS, min_size=1), st.integers(1, 200))
def test_every_terminal_width_shows_all_words(rows, width):
    lines = [plain(line) for line in row_lines(rows, width)]
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if indent and " " in line.strip():
            assert len(line) <= max(width - 1, indent + 20)
    expected = [f"{row.verdict} {row.check} {row.host} {row.text} {row.fix and '-> ' + row.fix}" for row in rows]
    assert " ".join(lines).split() == " ".join(expected).split()


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_of_hosts(width):
    link = f"{HOSTS[0]} -> {HOSTS[1]}"
    rows = [
        CheckResult(check, link, Verdict.OK, f"94 Mbit/s; {HOSTS[0]} is slow") for check in ("reachability", "GPUs")
    ]
    assert broken([HOSTS[0], HOSTS[1], "reachability"], "\n".join(row_lines(rows, width)), width) == []


@given(st.lists(ROWS, min_size=1))
def test_without_a_terminal_each_row_is_one_line(rows):
    assert len(row_lines(rows, None)) == len(rows)
    (line,) = row_lines([CheckResult("disk", "h1", Verdict.FAILED, "full\nok  disk  h1", "free\nsome")], None)
    assert line.endswith("disk  h1  full ok  disk  h1 -> free some")


def test_hosts_with_the_same_result_share_a_row():
    rows = [CheckResult("disk", f"h{number}", Verdict.OK, "enough") for number in range(9)]
    assert [row.host for row in merge_hosts(rows[:2])] == ["h0, h1"]
    assert [row.host for row in merge_hosts([*rows, CheckResult("disk", "x", Verdict.FAILED, "full")])] == [
        "h0, h1, h2 and 6 more",
        "x",
    ]
