"""The command itself: version, entry points, help and completion."""

import os
import re
import subprocess
import sys

import pytest

import tfdist
from tfdist.cli.__main__ import FAILED, INTERRUPTED, run_command
from tfdist.cli.main import run
from tfdist.jobs.options import CHOICES, HOST_OPTIONS, RECOVERY_OPTIONS, TIMEOUT_OPTIONS, TRAINING
from tfdist.launch.errors import ExitCode

COMMANDS = (
    "launch",
    "runs",
    "logs",
    "export",
    "stop",
    "sbatch",
    "bench",
    "tune",
    "collectives",
    "report",
    "compare",
    "predict",
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
    code = "import sys; from tfdist.cli.main import run; run([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert not imported & {f"tfdist.cli.{command.replace('-', '_')}" for command in COMMANDS}


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_truncates_nothing_and_explains_environment_variables(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([command, "-h"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    assert "--batch-size by TFDIST_BATCH_SIZE" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= columns


@pytest.mark.parametrize(
    "option", [*TRAINING, *HOST_OPTIONS, *RECOVERY_OPTIONS, *TIMEOUT_OPTIONS], ids=lambda row: row.name
)
def test_the_help_of_an_option_with_choices_lists_them(option):
    assert [choice for choice in CHOICES.get(option.name, ()) if choice not in option.text] == []


def test_the_help_of_launch_fits_its_reader(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["launch", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 150
    assert sum(line.startswith("│ --") for line in lines) <= 61  # --help is one


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
from tfdist.cli.main import run
code = run({arguments!r})
bench = sorted(name for name in sys.modules if name.startswith("tfdist.bench"))
sys.exit(f"imported {{bench}}" if bench else code)
"""


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

    monkeypatch.setattr("tfdist.cli.main.run", interrupted)
    assert run_command() == INTERRUPTED == ExitCode.INTERRUPTED
    assert FAILED == ExitCode.FAILED


def test_nothing_is_imported_where_an_interrupt_would_be_a_traceback():
    code = "import sys; before = set(sys.modules); import tfdist.cli.__main__; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert eval(done.stdout) <= {"tfdist", "tfdist.cli", "tfdist.cli.__main__"}


def test_other_errors_of_that_type_are_not_hidden(monkeypatch):
    def broken(_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("tfdist.cli.main.run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run_command()
