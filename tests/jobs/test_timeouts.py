import re

import pytest

from tfdist.cli.command import run
from tfdist.jobs.options import TIMEOUT_OPTIONS
from tfdist.jobs.recovery import read_timeouts, timeout_words
from tfdist.launch.policy import Policy


def test_values_that_are_not_given_are_those_of_the_policy():
    assert read_timeouts({}) == read_timeouts({"grace_period": None}) == Policy()


def test_each_option_sets_its_field():
    values = {"start_timeout": 90.0, "grace_period": 0.0, "launcher_timeout": 600.0}
    policy = read_timeouts(values)
    assert policy == Policy(start_timeout_s=90.0, grace_s=0.0, launcher_timeout_s=600.0)


def test_the_words_of_a_policy_are_those_that_set_it():
    assert timeout_words(Policy()) == []
    policy = Policy(start_timeout_s=90.0, launcher_timeout_s=12.5)
    assert timeout_words(policy) == ["--start-timeout", "90", "--launcher-timeout", "12.5"]


def test_the_defaults_in_the_help_are_those_of_the_policy():
    fields = ("start_timeout_s", "grace_s", "launcher_timeout_s")
    for option, field in zip(TIMEOUT_OPTIONS, fields, strict=True):
        assert re.search(r"Default: (\d+)s\.$", option.text)[1] == f"{getattr(Policy(), field):g}"


def test_the_start_timeout_reaches_connecting(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    transport = ["--transport", "exec:sh -c 'exec sleep 60' {host}"]
    assert run(["launch", "--hosts", "h1", *transport, "--start-timeout", "1", "--", "true"]) == 69
    assert "within 1 s" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["launch", "bench"])
def test_the_agent_receives_the_grace_period_and_the_timeout_of_the_launcher(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    transport = ["--transport", f"exec:sh -c 'timeout 1 cat >{tmp_path}/sent' {{host}}"]
    options = ["--grace-period", "7", "--launcher-timeout", "70", *(["--", "true"] if command == "launch" else [])]
    assert run([command, "--hosts", "h1", *transport, *options]) == 69
    assert b'{"kind": "configure", "grace_s": 7.0, "launcher_timeout_s": 70.0, ' in (tmp_path / "sent").read_bytes()
