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
    (["launch", "--set", "optimizer=adamw"], "--set optimizer=adamw: did you mean adam? Choose from adam, sgd"),
    (["launch", "--precision", "bfloat16"], "--precision bfloat16: did you mean mixed_bfloat16? Choose from float32, "),
    (["launch", "--communication", "NCCL"], "--communication NCCL: did you mean nccl? Choose from auto, ring, nccl"),
    (["launch", "--cross-device", "hierarchical"], "--cross-device hierarchical: did you mean hierarchical-copy? "),
    (
        ["launch", "--set", "placement=gredy"],
        "--set placement=gredy: did you mean greedy? Choose from round-robin, greedy",
    ),
    (["launch", "--keras", "4"], "--keras 4: choose from 2, 3"),
    (["launch", "--api", "lop"], "--api lop: did you mean loop? Choose from loop, fit"),
    (["bench", "--suite", "smok"], "--suite smok: No such file or directory; did you mean smoke? Choose from batch, "),
    (["tf-config", "--workers", "2", "--task", "wroker:1"], "--task wroker:1: did you mean worker:1? Choose from "),
    (["launch", "--worker", "2"], "--worker: no such option; did you mean --workers? See 'tfdist launch --help'"),
    (["launch", "-Z"], "-Z: no such option; see 'tfdist launch --help'"),
    (["lunch"], "no command 'lunch': did you mean launch? Choose from launch, runs, logs, stop, "),
    (["attach", "last"], "no command 'attach': use tfdist logs RUN --follow"),
    (["history", "a"], "no command 'history': use tfdist compare DIR DIR DIR..."),
    (["--verson"], "--verson: no such option; did you mean --version? See 'tfdist --help'"),
]


@pytest.mark.parametrize(("arguments", "message"), TYPOS, ids=lambda value: " ".join(value))
def test_a_typo_is_answered_with_the_nearest_choice(arguments, message, capsys):
    assert refusal(arguments, capsys).startswith(message)


WRONG_TYPES = [
    (["--workers", "two"], "--workers two: must be an integer"),
    (["--workers=two", "--", "prog", "--workers", "3"], "--workers two: must be an integer"),
    (["--workers", "1", "--workers", "two"], "--workers two: must be an integer"),
    (["--timeout", "soon"], "--timeout soon: give a duration, as 5s, 10m, 1h or 30d; without a unit it is in seconds"),
    (["--xla=3"], "--xla: Option '--xla' does not take a value; see 'tfdist launch --help'"),
    (["--port"], "--port: Option '--port' requires an argument; see 'tfdist launch --help'"),
    (["--strategy", ""], "--strategy '': choose from " + ", ".join(StrategyName)),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_TYPES, ids=lambda value: " ".join(value))
def test_a_value_of_the_wrong_type_is_named(arguments, message, capsys):
    assert refusal(["launch", *arguments], capsys) == message


def test_an_unreadable_file_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.env").touch()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read every file
    message = "--env-file mine.env: path 'mine.env' is not readable"
    assert refusal(["launch", "--env-file", "mine.env"], capsys) == message


def test_a_stray_or_missing_argument_is_named(capsys):
    assert (
        refusal(["bench", "my.toml"], capsys) == "my.toml: unexpected argument; a suite is given with --suite my.toml"
    )
    assert refusal(["report"], capsys) == "Missing argument 'DIR...'; see 'tfdist report --help'"


FROM_ENVIRONMENT = [
    ({"PRESET": "smoke"}, ["--", "true"], "--preset smoke is for the built-in training", "TFDIST_PRESET"),
    ({"PRESET": "smoke"}, ["--preset", "cpu", "--", "true"], "--preset cpu is for the built-in training", None),
    ({"WORKERS": "two"}, [], "--workers two: must be an integer", "TFDIST_WORKERS"),
    ({"WORKERS": "0"}, ["--strategy", "multiworker"], "--workers 0", "TFDIST_WORKERS"),
    ({"STRATEGY": "mirored"}, [], "--strategy mirored: did you mean mirrored?", "TFDIST_STRATEGY"),
    ({"TIMEOUT": "0.0"}, [], "--timeout 0.0: must be positive", "TFDIST_TIMEOUT"),
    ({"XLA": "maybe"}, [], "--xla maybe: must be true or false", "TFDIST_XLA"),
    ({"PORT": "65535", "STRATEGY": "multiworker"}, ["--workers", "3"], "--port 65535: ", "TFDIST_PORT"),
    ({"HOSTS": "a,,b"}, [], "--hosts 'a,,b': empty entry", "TFDIST_HOSTS"),
    ({"PACKS": "2"}, ["--strategy", "mirrored"], "--set packs=2 has no effect", "TFDIST_PACKS"),
]


@pytest.mark.parametrize(("variables", "arguments", "message", "source"), FROM_ENVIRONMENT)
def test_a_wrong_value_is_named_with_the_variable_that_set_it(
    variables, arguments, message, source, monkeypatch, capsys
):
    for name, value in variables.items():
        monkeypatch.setenv(f"TFDIST_{name}", value)
    text = refusal(["launch", *arguments], capsys)
    assert text.startswith(message)
    assert f"(set by {source})" in text if source else "set by" not in text


SETTINGS = [
    (["--set", "pack=2"], "--set pack=2: no key 'pack'; did you mean packs? Choose from "),
    (["--set", "packs"], "--set packs: needs a value, as --set packs=VALUE"),
    (["--set", "packs=two"], "--set packs=two: must be an integer"),
    (["--set", "ema=much"], "--set ema=much: must be a number"),
    (["--set", "memory_growth=maybe"], "--set memory_growth=maybe: must be true or false"),
    (["--set", "timeout-collective=soon"], "--set timeout_collective soon: give a duration"),
    (["--set", "seed=1", "--", "true"], "--set seed=1 is for the built-in training, but a COMMAND was given"),
    (["--packs", "2"], "--packs: no such option; use --set packs=VALUE"),
    (["--no-memory-growth"], "--no-memory-growth: no such option; use --set memory_growth=false"),
    (["--inherit-tf-config"], "--inherit-tf-config: no such option; use --inherit tf-config"),
    (["--ssh-port", "22"], "--ssh-port: no such option; use --ssh 'ssh -p PORT'"),
    (["--identity", "k"], "--identity: no such option; use --ssh 'ssh -i KEY'"),
    (["--ssh-option", "A=b"], "--ssh-option: no such option; use --ssh 'ssh -o OPTION'"),
    (["--save-config", "f"], "--save-config: no such option; use "),
    (["--include", "h*"], "--include: no such option; use --hosts or --exclude"),
]


@pytest.mark.parametrize(("arguments", "message"), SETTINGS, ids=lambda value: " ".join(value))
def test_a_wrong_setting_or_an_option_of_before_is_answered_with_what_works(arguments, message, capsys):
    assert refusal(["launch", *arguments], capsys).startswith(message)


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
        (["sbatch", "--nodes", "1", "launch", "--name", "{}"], "--name"),
        (["sbatch", "--nodes", "1", "--sbatch-option", "partition={}", "launch"], "--sbatch-option"),
        (["sbatch", "--nodes", "1", "launch", "--runs-dir", "{}"], "--runs-dir"),
        (["manifest", "--image", "{}", "launch"], "--image"),
        (["manifest", "--image", "i", "--name", "{}", "launch"], "--name"),
        (["manifest", "--image", "i", "--namespace", "{}", "launch"], "--namespace"),
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
    assert refusal(["launch", "--config", str(job)], capsys).startswith("--name 'a\\nb': has a line break")
    monkeypatch.setenv("TFDIST_NAME", "a\x1bb")
    assert refusal(["launch"], capsys).endswith("(set by TFDIST_NAME)")


def test_a_command_and_its_variables_may_hold_anything(capsys):
    assert run(["launch", "--dry-run", "--env", "A=1\n2", "--", "sh", "-c", "echo a\necho b"]) == 0
    assert "echo a\necho b" in capsys.readouterr().out
