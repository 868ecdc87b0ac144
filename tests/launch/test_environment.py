import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.launch.environment import (
    COMPUTED,
    device_order,
    forwarded_variables,
    read_env_file,
    shared_variables,
)
from tfdist.launch.errors import TfdistError

ENVIRON = {
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


# --- forwarded variables


def test_env_takes_values_names_and_globs():
    assert forwarded_variables(["A=1", "B=", "C=x=y z"], None, {}) == {"A": "1", "B": "", "C": "x=y z"}
    assert forwarded_variables(["HF_TOKEN", "EMPTY"], None, ENVIRON) == {"HF_TOKEN": "hf_abc", "EMPTY": ""}
    assert forwarded_variables(["NCCL_*"], None, ENVIRON) == {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}
    assert forwarded_variables(["NCCL_[DX]*", "?F_TOKEN"], None, ENVIRON) == {
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "hf_abc",
    }


def test_a_glob_skips_computed_variables_and_may_match_nothing():
    assert forwarded_variables(["TF_*"], None, ENVIRON) == {"TF_CPP_X": "1"}
    assert forwarded_variables(["NO_SUCH_*"], None, ENVIRON) == {}


def test_the_last_option_wins_and_overrides_the_file(env_file):
    path = env_file("A=file\nB=file\n")
    assert forwarded_variables(["A=one", "A=two"], path, {}) == {"A": "two", "B": "file"}


def test_an_env_file_may_have_comments_quotes_and_export(env_file):
    path = env_file(
        "# of the job\n\n  A=1\nexport B=two words\nC='quoted  # value '\nD=\"x\"\nE=\nF='\r\nG=a=b\nH=form\x0cfeed"
    )
    assert read_env_file(path) == {
        "A": "1", "B": "two words", "C": "quoted  # value ", "D": "x", "E": "", "F": "'", "G": "a=b", "H": "form\x0cfeed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "expected"),
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
def test_an_invalid_option_is_refused(option, expected):
    with pytest.raises(TfdistError) as caught:
        forwarded_variables([option], None, ENVIRON)
    assert "--env" in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nhunter2\n", "line 2: not NAME=VALUE"),
        ("A=1\n\n2B=hunter2\n", "line 3: '2B'"),
        ("TF_CONFIG=hunter2", "line 1: TF_CONFIG"),
        (b"A=\xff", "not UTF-8"),
    ],
)
def test_an_invalid_env_file_is_refused_with_its_line_but_no_value(env_file, text, expected):
    path = env_file(text)
    with pytest.raises(TfdistError) as caught:
        read_env_file(path)
    assert f"--env-file {path}" in str(caught.value)
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_env_file_is_refused(tmp_path):
    with pytest.raises(TfdistError, match=r"none\.env: No such file"):
        read_env_file(tmp_path / "none.env")


@given(st.binary(max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_env_file_is_read_or_refused(env_file, data):
    try:
        found = read_env_file(env_file(data))
    except TfdistError:
        return
    assert all(name.isascii() and name.isidentifier() for name in found)


def test_variables_of_tensorflow_and_its_libraries_are_shared_unless_computed():
    environ = {
        **ENVIRON,
        "XLA_FLAGS": "-a b",
        "GRPC_VERBOSITY": "ERROR",
        "TFDIST_HOSTS": "h1",
        "MY_TF_X": "",
        "TF_GRPC_REUSE_PORT": "true",
    }
    assert list(shared_variables(environ)) == ["GRPC_VERBOSITY", "NCCL_ALGO", "NCCL_DEBUG", "TF_CPP_X", "XLA_FLAGS"]
    assert shared_variables(environ)["XLA_FLAGS"] == "-a b"


def test_the_users_order_of_gpus_is_kept():
    assert device_order({"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "A": "1"}) == {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert device_order({"A": "1"}) == {}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_variables_are_refused(name):
    with pytest.raises(TfdistError, match=f"--env {name}: tfdist sets it for every task; "):
        forwarded_variables([f"{name}=1"], None, {})
