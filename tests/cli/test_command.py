"""Wrong command lines: typos, values from the environment, and the JSON line for programs."""

import json

import pytest

from tfdist.cli.main import run
from tfdist.strategies.options import StrategyName


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)


def refusal(arguments, capsys):
    """The message of a command line that is refused, without `tfdist: `."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("tfdist: ").rstrip("\n")


TYPOS = [
    (
        ["launch", "--strategy", "mirored"],
        "--strategy mirored: did you mean mirrored? Choose from auto, no-strategy, one-device, ",
    ),
    (["launch", "--preset", "smok"], "--preset smok: did you mean smoke? Choose from smoke, cpu, reference"),
    (["launch", "--model=mobilenet"], "--model mobilenet: did you mean mobilenet_v2? Choose from mobilenet_v2, tiny"),
    (["launch", "--optimizer", "adamw"], "--optimizer adamw: did you mean adam? Choose from adam, sgd"),
    (["launch", "--precision", "bfloat16"], "--precision bfloat16: did you mean mixed_bfloat16? Choose from float32, "),
    (["launch", "--communication", "NCCL"], "--communication NCCL: did you mean nccl? Choose from auto, ring, nccl"),
    (["launch", "--cross-device", "hierarchical"], "--cross-device hierarchical: did you mean hierarchical-copy? "),
    (["launch", "--placement", "gredy"], "--placement gredy: did you mean greedy? Choose from round-robin, greedy"),
    (["launch", "--keras", "4"], "--keras 4: choose from 2, 3"),
    (["launch", "--api", "lop"], "--api lop: did you mean loop? Choose from loop, fit"),
    (["bench", "--suite", "smok"], "--suite smok: No such file or directory; did you mean smoke? Choose from batch, "),
    (["tf-config", "--workers", "2", "--task", "wroker:1"], "--task wroker:1: did you mean worker:1? Choose from "),
    (["launch", "--worker", "2"], "--worker: no such option; did you mean --workers? See 'tfdist launch --help'"),
    (["launch", "-Z"], "-Z: no such option; see 'tfdist launch --help'"),
    (["lunch"], "no command 'lunch': did you mean launch? Choose from launch, runs, logs, attach, stop, "),
    (["--verson"], "--verson: no such option; did you mean --version? See 'tfdist --help'"),
]


@pytest.mark.parametrize(("arguments", "message"), TYPOS, ids=lambda value: " ".join(value))
def test_a_typo_is_answered_with_the_nearest_choice(arguments, message, capsys):
    assert refusal(arguments, capsys).startswith(message)


WRONG_TYPES = [
    (["--workers", "two"], "--workers two: must be an integer"),
    (["--workers=two", "--", "prog", "--workers", "3"], "--workers two: must be an integer"),
    (["--workers", "1", "--workers", "two"], "--workers two: must be an integer"),
    (["--timeout", "soon"], "--timeout soon: must be a number"),
    (["--xla=3"], "--xla: takes no value; see 'tfdist launch --help'"),
    (["--port"], "--port: needs a value; see 'tfdist launch --help'"),
    (["--strategy", ""], "--strategy '': choose from " + ", ".join(StrategyName)),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_TYPES, ids=lambda value: " ".join(value))
def test_a_value_of_the_wrong_type_is_named(arguments, message, capsys):
    assert refusal(["launch", *arguments], capsys) == message


def test_an_unreadable_file_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.env").touch()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read every file
    message = "--env-file mine.env: not readable; change its permissions, or choose another file"
    assert refusal(["launch", "--env-file", "mine.env"], capsys) == message


def test_a_stray_or_missing_argument_is_named(capsys):
    assert (
        refusal(["bench", "my.toml"], capsys) == "my.toml: unexpected argument; a suite is given with --suite my.toml"
    )
    assert refusal(["report"], capsys) == "DIR: missing argument; see 'tfdist report --help'"


FROM_ENVIRONMENT = [
    ({"PRESET": "smoke"}, ["--", "true"], "TFDIST_PRESET=smoke is for the built-in training"),
    ({"PRESET": "smoke"}, ["--preset", "cpu", "--", "true"], "--preset cpu is for the built-in training"),
    ({"PRESET": "smoke"}, ["--preset", "smoke", "--", "true"], "--preset smoke is for the built-in training"),
    ({"WORKERS": "two"}, [], "TFDIST_WORKERS=two: must be an integer"),
    ({"WORKERS": "0"}, ["--strategy", "multiworker"], "TFDIST_WORKERS=0"),
    ({"STRATEGY": "mirored"}, [], "TFDIST_STRATEGY=mirored: did you mean mirrored?"),
    ({"TIMEOUT": "0.0"}, [], "TFDIST_TIMEOUT=0: must be positive; unset it for no limit"),
    ({"XLA": "maybe"}, [], "TFDIST_XLA=maybe: must be true or false"),
    ({"EVALUATE": "1"}, [], "TFDIST_EVALUATE=1: "),
    ({"SSH_OPTION": "A=b C=d"}, [], "TFDIST_SSH_OPTION=A=b has no effect"),
    ({"WORKERS": "3", "PORT": "65535", "STRATEGY": "multiworker"}, [], "TFDIST_PORT=65535: "),
    ({"HOSTS": "a,,b"}, [], "TFDIST_HOSTS='a,,b': empty entry"),
]


@pytest.mark.parametrize(("variables", "arguments", "message"), FROM_ENVIRONMENT)
def test_a_wrong_value_is_named_by_the_option_or_variable_that_set_it(
    variables, arguments, message, monkeypatch, capsys
):
    for name, value in variables.items():
        monkeypatch.setenv(f"TFDIST_{name}", value)
    assert refusal(["launch", *arguments], capsys).startswith(message)


def test_advice_to_omit_an_option_from_the_environment_is_to_unset_it(monkeypatch, capsys):
    monkeypatch.setenv("TFDIST_PORT", "5000")
    assert refusal(["launch"], capsys).endswith("; unset TFDIST_PORT")


@pytest.mark.parametrize(
    "arguments",
    [
        ["launch", "--preset", "big"],
        ["launch", "--workers", "two"],
        ["launch", "--no-such-option"],
        ["bench", "--suite", "none"],
        ["doctor", "--port", "x"],
        ["report", "no-such-folder"],
        ["strategies", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_with_json_a_wrong_command_line_ends_with_a_json_line(arguments, capsys):
    assert run([arguments[0], "--json", *arguments[1:]]) == 2
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert err == f"tfdist: {result['reason']}\n"
    assert result == {"format": 1, "status": "refused", "exit_code": 2, "reason": result["reason"]}


def test_with_json_an_interrupt_before_the_start_ends_with_a_json_line(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfdist.cli.run_launch.plan_request", interrupt)
    monkeypatch.setenv("TFDIST_JSON", "1")
    assert run(["launch"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out) == {"format": 1, "status": "interrupted", "exit_code": 130, "reason": "interrupted"}
    assert err == "tfdist: interrupted\n"


def test_an_option_of_the_program_asks_for_no_json(capsys):
    assert refusal(["launch", "--port", "1", "--strategy", "mirrored", "--", "true", "--json"], capsys)


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["launch", "--name", "{}"], "--name"),
        (["launch", "--hosts", "h1,{}@h2"], "--hosts"),
        (["launch", "--hostfile", "{}"], "--hostfile"),
        (["launch", "--output", "{}"], "--output"),
        (["launch", "--checkpoint-dir", "gs://{}"], "--checkpoint-dir"),
        (["launch", "--remote-prefix", "{}", "--hosts", "h1"], "--remote-prefix"),
        (["sbatch", "--nodes", "1", "--name", "{}"], "--name"),
        (["sbatch", "--nodes", "1", "--sbatch-option", "partition={}"], "--sbatch-option"),
        (["sbatch", "--nodes", "1", "--runs-dir", "{}"], "--runs-dir"),
        (["manifest", "--image", "{}"], "--image"),
        (["manifest", "--image", "i", "--name", "{}"], "--name"),
        (["manifest", "--image", "i", "--namespace", "{}"], "--namespace"),
        (["bench", "--arm", "{}"], "--arm"),
        (["collectives", "--out", "{}"], "--out"),
        (["report", "{}"], "DIR"),
        (["logs", "{}"], "RUN"),
    ],
)
@pytest.mark.parametrize("text", ["x\ncommand #", "x\x1b[2J", "x\x9b", "\u202ex"])
def test_control_characters_are_refused_before_anything_starts(arguments, flag, text, capsys, tmp_path):
    value = next(word for word in arguments if "{}" in word).format(text)
    message = refusal([word.format(text) for word in arguments], capsys)
    assert message == f"{flag} {value!r}: has a line break or another control character; remove it"
    assert list(tmp_path.iterdir()) == []


def test_control_characters_from_the_environment_and_a_job_file_are_refused(capsys, monkeypatch, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('name = "a\\nb"\n')
    assert refusal(["launch", "--config", str(job)], capsys).startswith(f"{job}: name = 'a\\nb': has a line break")
    monkeypatch.setenv("TFDIST_NAME", "a\x1bb")
    assert refusal(["launch"], capsys).startswith(r"TFDIST_NAME='a\x1bb': has a line break")


def test_a_command_and_its_variables_may_hold_anything(capsys):
    assert run(["launch", "--dry-run", "--env", "A=1\n2", "--", "sh", "-c", "echo a\necho b"]) == 0
    assert "echo a\necho b" in capsys.readouterr().out
