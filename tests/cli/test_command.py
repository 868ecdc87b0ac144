"""Wrong command lines: typos, values from the environment, and the JSON line for programs."""

import json
import os
import re
import subprocess
import sys

import pytest

import tfdist
from tfdist.cli.__main__ import FAILED, INTERRUPTED, USAGE, run_command
from tfdist.cli.command import run
from tfdist.jobs.options import HOST_OPTIONS, PANELS, RECOVERY_OPTIONS, TIMEOUT_OPTIONS, TIMING, TRAINING
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.strategies.options import StrategyName

COMMANDS = (
    "launch",
    "runs",
    "logs",
    "export",
    "stacks",
    "stop",
    "sbatch",
    "bench",
    "tune",
    "collectives",
    "report",
    "compare",
    "predict",
    "check",
    "doctor",
    "strategies",
    "tf-config",
    "manifest",
)


def test_the_version_is_that_of_the_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tfdist {tfdist.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", tfdist.__version__)


@pytest.mark.parametrize("module", ["tfdist", "tfdist.cli"])
def test_python_m_is_the_same_command(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tfdist {tfdist.__version__}\n")


def test_without_arguments_the_commands_are_listed_each_with_the_first_sentence_of_its_help(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines())
    assert set(listed) == set(COMMANDS)
    for command, sentence in listed.items():
        assert run([command, "--help"]) == 0
        assert capsys.readouterr().out.splitlines()[3].strip().startswith(sentence)


def test_the_list_of_commands_imports_none_of_them():
    code = "import sys; from tfdist.cli.command import run; run([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert not imported & {f"tfdist.cli.{command.replace('-', '_')}" for command in COMMANDS}


def help_of(command, columns, monkeypatch, capsys):
    """What a terminal of this width shows, and the words in it but for the titles of panels."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*command, "-h"]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if not line.startswith("╭")]
    return out, {word for line in lines for word in re.split(r"[\s│╰╯─,]+", line)} - {"*"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [[], *([each] for each in COMMANDS), ["sbatch", "bench"]], ids=" ".join)
def test_help_breaks_and_cuts_no_word(command, monkeypatch, capsys):
    _, words = help_of(command, 400, monkeypatch, capsys)
    assert {"--help", "-h"} <= words
    for columns in (60, 80, 120):
        out, shown = help_of(command, columns, monkeypatch, capsys)
        assert words - shown == set()
        assert "…" not in out
        assert columns < 80 or max(map(len, out.splitlines())) <= columns  # an example is wider than 60
        assert not command or "--batch-size by TFDIST_BATCH_SIZE" in " ".join(out.split())


@pytest.mark.parametrize(
    "option", [*TRAINING, *HOST_OPTIONS, *RECOVERY_OPTIONS, *TIMEOUT_OPTIONS], ids=lambda row: row.name
)
def test_the_help_of_an_option_with_choices_lists_them(option):
    assert [choice for choice in option.choices if choice not in option.text] == []


def test_the_help_of_launch_fits_its_reader(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["launch", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 156
    assert sum(line.startswith("│ --") for line in lines) <= 66  # --help is one
    panels = [line.strip("╭─╮ ") for line in lines if line.startswith("╭")]
    assert panels == ["Arguments", "Options", *(panel for panel in PANELS if panel != TIMING)]
    first = " ".join(lines[lines.index(next(line for line in lines if "Usage:" in line)) + 1 :][:10])
    assert all(each in first for each in ("-- python train.py", "--hosts h1,h2", "--strategy multiworker"))


@pytest.mark.parametrize("scheduler", ["sbatch", "manifest"])
def test_a_scheduler_has_few_options_before_the_command(scheduler, capsys):
    assert run([scheduler, "--help"]) == 0
    assert sum(line.startswith("│ --") for line in capsys.readouterr().out.splitlines()) <= 16


@pytest.mark.parametrize("scheduler", ["sbatch", "manifest"])
def test_the_help_of_the_second_command_is_that_of_the_command(scheduler, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["launch", "--help"]) == 0
    alone = capsys.readouterr().out.splitlines()
    assert run([scheduler, "launch", "--help"]) == 0
    behind = capsys.readouterr().out.splitlines()
    assert behind[1].startswith(f" Usage: tfdist {scheduler} ")
    assert behind[-140:] == alone[-140:]


@pytest.mark.parametrize(("scheduler", "command"), [("sbatch", "report"), ("manifest", "tune"), ("sbatch", "lunch")])
def test_a_scheduler_refuses_other_commands_by_name(scheduler, command, capsys):
    assert run([scheduler, command]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"tfdist: {scheduler} {command}: ")
    assert f"{scheduler} takes one of launch, bench" in err


def completions(line, monkeypatch, capsys):
    """What the shell is offered for the last word of `line`."""
    monkeypatch.setenv("_TFDIST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    with pytest.raises(SystemExit):
        run(["ignored"])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tfdist la", ["launch"]),
        ("tfdist launch --preset ", ["smoke", "cpu", "reference"]),
        ("tfdist launch --preset s", ["smoke"]),
        ("tfdist launch --strategy m", ["mirrored", "multiworker"]),
        ("tfdist launch --model ", ["mobilenet_v2", "tiny"]),
        ("tfdist launch --set opt", ["optimizer="]),
        ("tfdist sbatch --nodes 2 launch --preset s", ["smoke"]),
        ("tfdist manifest la", ["launch"]),
        ("tfdist launch --precision mixed_b", ["mixed_bfloat16"]),
        (
            "tfdist bench --suite ",
            [
                "batch",
                "classic",
                "convergence",
                "cpu",
                "gpu",
                "hosts",
                "knobs",
                "quick",
                "smoke",
                "storage",
                "stragglers",
                "my.toml",
            ],
        ),
        ("tfdist bench --suite m", ["my.toml"]),
        ("tfdist launch --cross", ["--cross-device"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(line, values, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").touch()
    assert completions(line, monkeypatch, capsys) == values


IMPORTED = """
import sys
from tfdist.cli.command import run
code = run({arguments!r})
bench = sorted(name for name in sys.modules if name.startswith("tfdist.bench"))
sys.exit(f"imported {{bench}}" if bench else code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["launch", "--dry-run"], ["launch", "--strategy", "multiworker", "--", "true"], ["doctor", "--help"]],
    ids=" ".join,
)
def test_only_bench_and_report_import_the_bench_package(arguments, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(arguments=arguments)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_that_python_wraps_in_another_error_is_no_traceback(monkeypatch):
    def interrupted(_):
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("tfdist.cli.command.run", interrupted)
    assert run_command() == INTERRUPTED == ExitCode.INTERRUPTED
    assert FAILED == ExitCode.FAILED


OTHER_SYSTEM = """
import sys
sys.platform = {platform!r}
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "typer", "rich", "pandas", "psutil", "tensorflow"):
    sys.modules[name] = None
sys.argv = ["tfdist", "launch"]
import runpy
from tfdist.cli.__main__ import main
{call}
"""


@pytest.mark.parametrize("call", ["main()", "runpy.run_module('tfdist', run_name='__main__')"])
@pytest.mark.parametrize("platform", ["darwin", "win32", "cygwin"])
def test_another_system_is_refused_in_one_sentence_before_anything_is_imported_that_it_lacks(platform, call):
    code = OTHER_SYSTEM.format(platform=platform, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    sentence = f"tfdist: this is {platform}, and tfdist needs Linux, or WSL on Windows\n"
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", sentence)
    assert USAGE == ExitCode.USAGE


def test_nothing_is_imported_where_an_interrupt_would_be_a_traceback():
    code = "import sys; before = set(sys.modules); import tfdist.cli.__main__; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert eval(done.stdout) <= {"tfdist", "tfdist.cli", "tfdist.cli.__main__"}


def test_other_errors_of_that_type_are_not_hidden(monkeypatch):
    def broken(_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("tfdist.cli.command.run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run_command()


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
    (["lunch"], "no command 'lunch': did you mean launch? Choose from launch, runs, logs, stacks, stop, "),
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


def test_a_variable_with_a_typo_is_a_warning_and_those_of_other_commands_are_none(monkeypatch, capsys):
    for name in ("TFDIST_STRATGY", "TFDIST_ROUNDS", "TFDIST_TASK", "TFDIST_BATCH_SIZE", "TFDIST_OF_SOMEBODY_ELSE"):
        monkeypatch.setenv(name, "1")
    assert run(["tf-config", "--json"]) == 2
    warning, sentence = capsys.readouterr().err.splitlines()
    assert warning == "warning: TFDIST_STRATGY: no such variable; did you mean TFDIST_STRATEGY?"
    assert sentence == "tfdist: --json: no such option; see 'tfdist tf-config --help'"


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


def test_a_variable_of_launch_is_not_for_an_option_of_the_same_name_that_means_something_else(monkeypatch, capsys):
    monkeypatch.setenv("TFDIST_PRECISION", "mixed_bfloat16")
    monkeypatch.setenv("TFDIST_DEVICES", "1")
    monkeypatch.setenv("TFDIST_BYTES_PER_PACK", "4M")
    assert run(["bench", "--suite", "smoke", "--dry-run"]) == 0
    assert run(["collectives", "--dry-run"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    monkeypatch.setenv("TFDIST_STRATEGY", "independent")
    monkeypatch.setenv("TFDIST_CHECK_STRATEGY", "mirored")
    assert "--strategy mirored: did you mean mirrored?" in refusal(["check", "train.py"], capsys)


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
]


@pytest.mark.parametrize(("arguments", "message"), SETTINGS, ids=lambda value: " ".join(value))
def test_a_wrong_setting_is_answered_with_what_works(arguments, message, capsys):
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

    monkeypatch.setattr("tfdist.cli.run_launch.plan", interrupt)
    monkeypatch.setenv("TFDIST_JSON", "1")
    assert run(["launch"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out) == {"format": 1, "status": "interrupted", "exit_code": 130, "reason": "interrupted"}
    assert err == "tfdist: interrupted\n"


@pytest.mark.parametrize(
    ("code", "status"), [(143, "interrupted"), (129, "interrupted"), (75, "refused"), (69, "refused")]
)
def test_with_json_an_end_before_the_start_has_the_status_of_the_outcome(code, status, monkeypatch, capsys):
    def end(*_):
        raise TfdistError("interrupted before any task was started", code)

    monkeypatch.setattr("tfdist.cli.run_launch.plan", end)
    assert run(["launch", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["status"] == status


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
