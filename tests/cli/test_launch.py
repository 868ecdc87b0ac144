"""tfdist launch with programs that are not trainings."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lab.reference.pages import OF_TFDIST
from tfdist.cli.command import run

pytestmark = pytest.mark.usefixtures("odd_folder")

SHOW = "import os, json; print(json.dumps({k: os.environ.get(k) for k in ('TF_CONFIG', 'TF_USE_LEGACY_KERAS', 'TFDIST_TASK', 'TFDIST_STRATEGY_CHOICE')}))"


def test_dry_run_prints_a_valid_tf_config_for_every_task_and_starts_nothing(capsys):
    assert run(["launch", "--dry-run", "--json", "--strategy", "parameter-server", "--workers", "2", "--ps", "2"]) == 0
    out, err = capsys.readouterr()
    plans = json.loads(out)["tasks"]
    assert [plan["task"] for plan in plans] == ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]
    clusters = [json.loads(plan["env"]["TF_CONFIG"]) for plan in plans]
    assert {len(cluster["cluster"]["ps"]) for cluster in clusters} == {2}
    assert [cluster["task"]["index"] for cluster in clusters] == [0, 0, 1, 0, 1]
    assert err == "preset cpu: no GPU found\n"
    assert list(Path().iterdir()) == []


def task_blocks(out):
    """The lines of each task of a dry run, by task."""
    return {block.split()[0]: block.splitlines() for block in out.split("\n\n") if " on localhost, " in block}


def test_dry_run_shows_an_indented_tf_config_before_the_other_variables(capsys):
    assert run(["launch", "--dry-run", "--strategy", "multiworker", "--env", "A=1", "--", "true"]) == 0
    lines = task_blocks(capsys.readouterr().out)["worker-1"][1:]
    assert lines[0] == "  TF_CONFIG={"
    end = lines.index("  }")
    tf_config = json.loads("\n".join(lines[: end + 1]).replace("TF_CONFIG=", ""))
    assert tf_config["task"] == {"type": "worker", "index": 1}
    assert "  A=1" in lines[end:]
    assert lines[-1] == "  true"


@pytest.mark.parametrize(
    ("arguments", "internal"),
    [(["--preset", "smoke"], "TFDIST_SPEC="), (["--strategy", "multiworker", "--", "true"], "TFDIST_STRATEGY_CHOICE=")],
)
def test_dry_run_shows_internal_variables_only_with_verbose_or_json(arguments, internal, capsys):
    run(["launch", "--dry-run", *arguments])
    out = capsys.readouterr().out
    assert "TFDIST_TASK=" in out
    assert "TFDIST_SPEC" not in out
    assert "TFDIST_STRATEGY_CHOICE" not in out
    run(["launch", "--dry-run", "-v", *arguments])
    assert f"  {internal}{{" in capsys.readouterr().out
    run(["launch", "--dry-run", "--json", *arguments])
    assert internal.rstrip("=") in json.loads(capsys.readouterr().out)["tasks"][0]["env"]


def test_notes_are_printed_only_for_decisions_of_tfdist(capsys):
    run(["launch", "--dry-run", "--preset", "smoke", "--strategy", "mirrored"])
    assert capsys.readouterr().out.startswith("\nworker-0 on localhost")
    run(["launch", "--dry-run", "--workers", "2", "--preset", "smoke"])
    assert capsys.readouterr().out.startswith("strategy multiworker: --workers 2\n")


def test_dry_run_shows_command_cores_and_environment(capsys):
    assert run(["launch", "--dry-run", "--strategy", "multiworker", "--", "echo", "a b"]) == 0
    out = capsys.readouterr().out
    assert "worker-1 on localhost" in out
    assert "TF_CONFIG={" in out
    assert "echo 'a b'" in out


def test_the_first_line_is_the_default_preset_and_its_reason(capsys):
    run(["launch", "--dry-run"])
    assert capsys.readouterr().out.startswith("preset cpu: no GPU found\n")


def test_a_script_runs_with_and_without_python_in_the_command(capsys):
    Path("my 'script'.py").write_text(SHOW)
    for command in (["python", "my 'script'.py"], ["my 'script'.py"], ["python3", "my 'script'.py"]):
        assert run(["launch", "--strategy", "multiworker", "--json", "--", *command]) == 0
        out, _ = capsys.readouterr()
        run_dir = Path(json.loads(out.splitlines()[-1])["run_dir"])
        result = [json.loads((run_dir / f"attempt-0/worker-{n}/stdout.log").read_text()) for n in range(2)]
        assert [json.loads(each["TF_CONFIG"])["task"]["index"] for each in result] == [0, 1]
        assert all(each["TF_USE_LEGACY_KERAS"] == "1" for each in result)
        assert json.loads(result[0]["TFDIST_STRATEGY_CHOICE"])["strategy"] == "multiworker"


def test_keras_reaches_the_program_unless_the_environment_sets_it(capsys, monkeypatch):
    Path("s.py").write_text(SHOW)
    run(["launch", "--keras", "3", "--strategy", "one-device", "s.py"])
    assert '"TF_USE_LEGACY_KERAS": "0"' in capsys.readouterr().out
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "mine")
    run(["launch", "--strategy", "one-device", "s.py"])
    assert '"TF_USE_LEGACY_KERAS": "mine"' in capsys.readouterr().out


def test_the_keras_of_the_environment_reaches_every_task_and_env_overrides_it(capsys, monkeypatch):
    Path("s.py").write_text(SHOW)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "mine")
    run(["launch", "--dry-run", "--strategy", "one-device", "s.py"])
    assert "TF_USE_LEGACY_KERAS=mine" in capsys.readouterr().out  # sent along: other hosts do not have it
    run(["launch", "--dry-run", "--strategy", "one-device", "--env", "TF_USE_LEGACY_KERAS=0", "s.py"])
    assert "TF_USE_LEGACY_KERAS=0" in capsys.readouterr().out


def test_variables_of_the_user_override_defaults(capsys, tmp_path):
    given = ["--env", "OMP_NUM_THREADS=7", "--env", f"TMPDIR={tmp_path}"]
    assert run(["launch", "--dry-run", "--preset", "smoke", *given]) == 0
    assert "OMP_NUM_THREADS=7" in capsys.readouterr().out
    Path("s.py").write_text("import tempfile; print(tempfile.gettempdir())")
    assert run(["launch", "--strategy", "one-device", *given, "s.py"]) == 0
    assert f"[worker-0] {tmp_path}\n" in capsys.readouterr().out


def test_secrets_of_a_command_are_in_no_file_of_the_run_and_no_message(capsys):
    secrets = ["API_TOKEN=hunter2", "sh", "-c", "exit 3", "--token", "hunter2", "--url=https://me:hunter2@h/x"]
    headers = ["-H", "Authorization: Bearer hunter2", "--api-key=hunter2"]
    variables = ["--env", "DATABASE=postgres://me:hunter2@h/x", "--env", "MY_PASSWORD=hunter2"]
    command = ["--strategy", "one-device", *variables, "--", "env", *secrets, *headers]
    assert run(["launch", *command]) == 3
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    assert {"spec.json", "commands.txt", "cluster.json", "outcome.json"} <= {path.name for path in files}
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert run(["launch", "--dry-run", "-v", *command]) == 0
    assert run(["launch", "--dry-run", "--json", *command]) == 0
    assert run(["launch", "--strategy", "one-device", "--", "https://me:hunter2@h/x.py"]) == 2
    assert run(["launch", "--timeout", "https://me:hunter2@h"]) == 2
    printed = "".join(capsys.readouterr())
    assert "again: " in printed
    assert "hunter2" not in printed


def test_a_script_is_found_in_the_folder_of_chdir(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "only.py").write_text("import os; print(os.getcwd())")
    arguments = ["--hosts", "localhost", "--chdir", str(tmp_path / "d"), "--strategy", "one-device"]
    assert run(["launch", *arguments, "--", "python", "only.py"]) == 0
    assert f"[worker-0] {tmp_path / 'd'}\n" in capsys.readouterr().out


def test_output_is_prefixed_and_the_exit_code_is_that_of_the_first_failure(capsys):
    Path("s.py").write_text(
        "import os, sys\nprint('hello')\nif os.environ['TFDIST_TASK'] == 'worker-1': sys.exit('because of this')\n"
    )
    assert run(["launch", "--strategy", "multiworker", "s.py"]) == 1
    out, err = capsys.readouterr()
    assert "[worker-0] hello\n" in out
    assert "[worker-1] because of this\n" in err
    report = err[err.index("tfdist: ") :]
    assert report.startswith("tfdist: worker-1 exited with code 1\n  logs:")  # its lines are right above
    assert "logs:" in report
    assert "again:" in report


def test_the_log_of_a_failure_leaves_out_start_up_messages_of_tensorflow(capsys):
    noise = "I0000 00:00:1795274173.504927   16090 port.cc:153] oneDNN custom operations are on."
    assert (
        run(
            ["launch", "--quiet", "--strategy", "one-device", "--", "sh", "-c", f"echo '{noise}' >&2; echo why; exit 3"]
        )
        == 3
    )
    err = capsys.readouterr().err
    assert "tfdist: worker-0 exited with code 3\n  | why\n  logs:" in err
    assert "oneDNN" not in err.partition("  again:")[0]


def test_json_is_the_last_line_of_stdout_and_everything_else_goes_to_stderr(capsys):
    assert run(["launch", "--json", "--strategy", "multiworker", "--", "sh", "-c", "echo hi; exit 3"]) == 3
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    result = json.loads(out)
    assert (result["status"], result["exit_code"], result["tasks"]["worker-0"]["exit_code"]) == ("failed", 3, 3)
    assert "[worker-0] hi" in err


def test_quiet_prints_what_the_program_writes_and_nothing_else_after_success(capsys):
    program = ["--workers", "1", "--", "sh", "-c", "echo hi; echo there >&2"]
    assert run(["launch", "--quiet", "--strategy", "independent", *program]) == 0
    assert capsys.readouterr() == ("[worker-0] hi\n", "[worker-0] there\n")


def test_quiet_prints_failures(capsys):
    assert run(["launch", "--quiet", "--strategy", "one-device", "--", "false"]) == 1
    assert "tfdist: worker-0 exited with code 1" in capsys.readouterr().err


NAMES = 'import os; print("I am", os.environ["TFDIST_TASK"])'


@pytest.mark.parametrize(
    ("output", "tasks"),
    [
        ("worker", ["worker-0", "worker-1"]),
        ("chief, worker-1", ["chief-0", "worker-1"]),
        ("none", []),
    ],
)
def test_the_lines_of_chosen_tasks_are_printed_and_the_logs_keep_all(output, tasks, capsys):
    command = ["launch", "--strategy", "parameter-server", "--workers", "2", "--ps", "1", "--output", output]
    wait = "import time; time.sleep(0 if 'chief' in os.environ['TFDIST_TASK'] else 600)"
    ready = "import pathlib; pathlib.Path(os.environ['TFDIST_TASK'].replace(':', '-')).touch()"
    meet = "import time\nwhile len(list(pathlib.Path().glob('[cpw]*[0-9]'))) < 4: time.sleep(0.01)"
    Path("program.py").write_text("\n".join((NAMES, "import sys; sys.stdout.flush()", ready, meet, wait)))
    assert run([*command, "--", "python", "program.py"]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if "I am" in line]
    assert sorted(line.split("]")[0][1:] for line in printed) == tasks
    assert len([log for log in Path("runs").glob("*/*/*/stdout.log") if "I am" in log.read_text()]) == 4


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        (
            "worker-9",
            "no task or role 'worker-9'; did you mean worker-1? Choose from all, none, worker, worker-0, worker-1",
        ),
        ("", "no task or role ''; choose from"),
        ("worker-0,shief", "no task or role 'shief'; choose from"),
    ],
)
def test_unknown_tasks_are_refused_before_anything_starts(output, fix, capsys):
    assert run(["launch", "--strategy", "multiworker", f"--output={output}", "--", "touch", "started"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert fix in err
    assert list(Path().iterdir()) == []


def test_lines_without_a_prefix_and_with_the_time(capsys):
    command = ["launch", "--strategy", "one-device"]
    assert run([*command, "--no-prefix", "--", "echo", "a"]) == 0
    assert "a" in capsys.readouterr().out.splitlines()
    assert run([*command, "--timestamps", "--", "echo", "a"]) == 0
    assert re.search(r"^[\d-]{10}T[\d:.]{12}Z \[worker-0\] a$", capsys.readouterr().out, re.MULTILINE)


def test_options_are_read_from_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("TFDIST_STRATEGY", "multiworker")
    monkeypatch.setenv("TFDIST_WORKERS", "3")
    assert run(["launch", "--dry-run", "--json", "--", "true"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tasks"]) == 3


def test_inherit_runs_only_the_task_of_tf_config(capsys, monkeypatch):
    Path("s.py").write_text(SHOW)
    tf_config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    assert run(["launch", "--inherit", "tf-config", "--no-wait-for-peers", "s.py"]) == 0
    out = capsys.readouterr().out
    assert "this task, from TF_CONFIG: worker 1" in out
    (line,) = [line for line in out.splitlines() if line.startswith("[worker-1] ")]
    result = json.loads(line.removeprefix("[worker-1] "))
    assert json.loads(result["TF_CONFIG"]) == tf_config
    assert json.loads(result["TFDIST_STRATEGY_CHOICE"])["workers"] == 2


def test_modules_in_the_folder_do_not_shadow_those_of_python():
    for name in ("random.py", "json.py", "subprocess.py", "platform.py", "tfdist.py", "models.py"):
        Path(name).write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "tfdist.cli", "launch", "--strategy", "one-device", "--", "true"]
    )
    assert done.returncode == 0


LIGHT = """
import sys
from tfdist.cli.command import run
code = any([run(arguments) for arguments in {commands!r}])
heavy = sorted(set(sys.modules) & {{"tensorflow", "tf_keras", "keras", "pandas", "matplotlib", "numpy", "scipy"}})
sys.exit(f"imported {{heavy}}" if heavy or code else 0)
"""


def check_imports(*commands):
    done = subprocess.run([sys.executable, "-c", LIGHT.format(commands=commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_launcher_imports_neither_tensorflow_nor_pandas():
    check_imports(
        ["--help"],
        ["launch", "--help"],
        ["bench", "--help"],
        ["strategies"],
        ["tf-config", "--workers", "2"],
        ["runs"],
        ["launch", "--dry-run", "--dataset", "digits", "--strategy", "mirrored"],
        ["launch", "--strategy", "multiworker", "--", "true"],
    )


@pytest.mark.slow
def test_nor_with_the_variables_that_no_option_has_or_another_command(monkeypatch):
    for variable in (*OF_TFDIST, "TFDIST_ROUNDS", "TFDIST_OF_SOMEBODY_ELSE"):
        monkeypatch.setenv(variable, "0")
    check_imports(["launch", "--strategy", "multiworker", "--", "true"])


def test_options_after_a_program_are_those_of_the_program(capsys):
    Path("s.py").write_text("import sys; print(sys.argv[1:])")
    assert run(["launch", "--strategy", "one-device", "python", "s.py", "--name", "x", "--port", "5", "-v"]) == 0
    assert "['--name', 'x', '--port', '5', '-v']" in capsys.readouterr().out


def test_the_commands_that_are_printed_and_kept_are_those_of_the_entry(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/home/me/other.py", "--odd"])
    options = ["--strategy", "one-device", "--checkpoint-dir", "ck", "--", "sh", "-c", "touch ck/saved; exit 3"]
    assert run(["launch", *options]) == 3
    (folder,) = Path("runs").iterdir()
    lines = capsys.readouterr().err.splitlines()
    assert f"  again: {shlex.join(['tfdist', 'launch', *options])}" in lines
    assert lines[-1] == f"  resume: {shlex.join(['tfdist', 'launch', '--resume', str(folder), *options])}"
    assert (folder / "commands.txt").read_text().splitlines()[0] == shlex.join(["tfdist", "launch", *options])


def test_arguments_and_output_may_be_invalid_utf_8(capsys):
    assert run(["launch", "--strategy", "one-device", "--", "echo", "caf\udcff"]) == 0
    assert "[worker-0] caf" in capsys.readouterr().out


@pytest.mark.slow
def test_a_closed_or_full_stdout_is_no_traceback():
    command = f"{shlex.quote(sys.executable)} -m tfdist.cli launch --strategy one-device -- sh -c 'echo a; echo b'"
    for shell in (f"{command} >&-", f"{command} 2>&-"):
        assert subprocess.run(["bash", "-c", shell], capture_output=True).returncode == 0
    for shell in (f"{command} >/dev/full", f"{command} | head -0"):
        assert "Traceback" not in subprocess.run(["bash", "-c", shell], capture_output=True, text=True).stderr
    done = subprocess.run(["bash", "-c", f"{command} >/dev/full"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device; free some space" in done.stderr


@pytest.mark.slow
def test_a_job_is_no_failure_if_its_reader_has_read_enough():
    command = f"{shlex.quote(sys.executable)} -m tfdist.cli launch -- sh -c 'sleep 0.5; echo a; sleep 0.5; echo b'"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | head -0"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_names_and_values_may_hold_any_bytes(tmp_path):
    command = [os.fsencode(sys.executable), b"-m", b"tfdist.cli", b"launch", b"--strategy", b"one-device"]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    for more in ([b"--dry-run", b"--env", b"A=\xff"], [b"--runs-dir", os.fsencode(tmp_path) + b"/\xff"]):
        done = subprocess.run([*command, *more, b"--", b"true"], capture_output=True, text=True, env=strict)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\\udcff" in done.stdout


TWO_JOBS = """
import os, subprocess, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
TFDIST = [sys.executable, "-m", "tfdist.cli", "launch", "--strategy", "one-device", "--set", "cores_per_device=1", "--"]
SHOW = "import os, time; print('cores', *os.sched_getaffinity(0), flush=True); time.sleep(float(os.environ['SLEEP']))"


def start(sleep):
    job = subprocess.Popen(["env", f"SLEEP={sleep}", *TFDIST, "python", "-c", SHOW], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in job.stdout:
        lines.append(line)
        if "cores" in line.partition("] ")[2]:
            return job, line.split()[-1], [line for line in lines if line.startswith("warning")]


jobs = [start(60) for _ in os.sched_getaffinity(0)]
assert {core for _, core, _ in jobs} == set(map(str, os.sched_getaffinity(0))), jobs
assert not [text for _, _, warnings in jobs for text in warnings if "pinned" in text], jobs
last, core, (warning,) = start(0)
assert warning == f"warning: other programs on localhost are pinned to core {core}, as this job is: end them, or expect longer steps\\n"
for job, _, _ in jobs:
    job.terminate()
    job.wait()
last.wait()
"""


@pytest.mark.slow
def test_two_jobs_at_once_take_different_cores_and_one_more_is_warned(tmp_path):
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no process namespace can be made here")
    done = subprocess.run([*alone, sys.executable, "-c", TWO_JOBS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
