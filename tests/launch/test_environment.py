import json
import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.launch.dry_run import describe_plan, save_plan
from tfdist.launch.environment import (
    COMPUTED,
    REDACTED,
    forwarded_variables,
    read_env_file,
    redact_command,
    redact_value,
)
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.rundir import RunDir

from .jobs import roles

HERE = {
    "NCCL_DEBUG": "INFO",
    "NCCL_ALGO": "Ring",
    "HF_TOKEN": "hf_abc",
    "TF_CONFIG": "{}",
    "TF_CPP_X": "1",
    "EMPTY": "",
}


@pytest.fixture
def env_file(tmp_path):
    def write(text):
        path = tmp_path / "vars.env"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# --- which


def test_a_value_a_name_as_it_is_here_and_a_glob():
    assert forwarded_variables(["A=1", "B=", "C=x=y z"], None, {}) == {"A": "1", "B": "", "C": "x=y z"}
    assert forwarded_variables(["HF_TOKEN", "EMPTY"], None, HERE) == {"HF_TOKEN": "hf_abc", "EMPTY": ""}
    assert forwarded_variables(["NCCL_*"], None, HERE) == {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}
    assert forwarded_variables(["NCCL_[DX]*", "?F_TOKEN"], None, HERE) == {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abc"}


def test_a_glob_leaves_out_what_is_computed_for_every_task_and_may_find_nothing():
    assert forwarded_variables(["TF_*"], None, HERE) == {"TF_CPP_X": "1"}
    assert forwarded_variables(["NO_SUCH_*"], None, HERE) == {}


def test_the_last_option_wins_and_an_option_wins_over_the_file(env_file):
    path = env_file("A=file\nB=file\n")
    assert forwarded_variables(["A=one", "A=two"], path, {}) == {"A": "two", "B": "file"}


def test_a_file_has_comments_quotes_and_export(env_file):
    path = env_file(
        "# of the job\n\n  A=1\nexport B=two words\nC='quoted  # value '\nD=\"x\"\nE=\nF='\r\nG=a=b\nH=form\x0cfeed"
    )
    assert read_env_file(path) == {
        "A": "1", "B": "two words", "C": "quoted  # value ", "D": "x", "E": "", "F": "'", "G": "a=b", "H": "form\x0cfeed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("NOT_HERE", "NOT_HERE: not set"),
        ("1A=x", "'1A': not a variable name"),
        ("A-B", "'A-B': not"),
        ("=x", "'': not"),
        ("", "'': not"),
        ("A B=1", "'A B': not"),
        ("TF_CONFIG={}", "TF_CONFIG: tfdist sets it"),
        ("TF_CONFIG", "TF_CONFIG: tfdist sets it"),
    ],
)
def test_a_wrong_option_names_itself(option, says):
    with pytest.raises(TfdistError) as caught:
        forwarded_variables([option], None, HERE)
    assert "--env" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A=1\nhunter2\n", "line 2: not NAME=VALUE"),
        ("A=1\n\n2B=hunter2\n", "line 3: '2B'"),
        ("TF_CONFIG=hunter2", "line 1: TF_CONFIG"),
        (b"A=\xff", "not UTF-8"),
    ],
)
def test_a_wrong_file_names_the_line_and_never_a_value(env_file, text, says):
    path = env_file(text)
    with pytest.raises(TfdistError) as caught:
        read_env_file(path)
    assert f"--env-file {path}" in str(caught.value)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TfdistError, match=r"none\.env: No such file"):
        read_env_file(tmp_path / "none.env")


@given(st.binary(max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_gives_variables_or_one_sentence(env_file, data):
    try:
        found = read_env_file(env_file(data))
    except TfdistError:
        return
    assert all(name.isascii() and name.isidentifier() for name in found)


# --- what may be shown

SECRETS = [
    "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD", "DB_PASS", "OPENAI_KEY", "github_token",
    "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE", "BASIC_AUTH", "APIKEY",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_name_that_looks_secret_is_shown_with_stars(name):
    assert redact_value(name, "hunter2") == REDACTED
    for words in ([f"{name}=hunter2"], ["-x", f"{name}=hunter2"], [f"--env={name}=hunter2"], [f"-x{name}=hunter2"]):
        assert "hunter2" not in redact_command(["tfdist", *words])
        assert name in redact_command(words)


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "PATH", "KEYBOARD", "TF_CPP_MIN_LOG_LEVEL", "PWD", "PASSENGERS"])
def test_other_values_are_shown(name):
    assert redact_value(name, "info") == "info"
    assert redact_command(["-x", f"{name}=a b"]) == shlex.join(["-x", f"{name}=a b"])


def test_an_option_of_the_users_own_program_is_hidden_too():
    assert redact_command(["python", "t.py", "--api-key=hunter2", "--lr=0.1"]) == "python t.py '--api-key=***' --lr=0.1"


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_for_every_task_is_refused(name):
    with pytest.raises(TfdistError, match=f"--env {name}: tfdist sets it for every task; "):
        forwarded_variables([f"{name}=1"], None, {})


def test_secrets_reach_the_task_and_no_file_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tfdist", "launch", "-x", "MY_TOKEN=hunter2", "--", "t.py"])
    program = Program(("t.py", "--password=hunter2"), {"MY_TOKEN": "hunter2", "SHOWN": "yes"}, "/")
    job = plan_job(Shape(roles(worker=2), has_cluster=False), program, local_machines(Machine((0,), ())))
    (tmp_path / "run").mkdir()
    save_plan(job, {}, RunDir(tmp_path / "run"))
    assert job.environment(job.plans[0])["MY_TOKEN"] == "hunter2"
    described = describe_plan(job, job.plans[0])
    assert described["env"]["MY_TOKEN"] == REDACTED
    assert described["env"]["SHOWN"] == "yes"
    assert "hunter2" not in json.dumps(described)
    written = {path.name: path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert "commands.txt" in written
    assert "MY_TOKEN=***" in written["commands.txt"]
    assert not [name for name, text in written.items() if "hunter2" in text]
