"""docs/errors.md has every message that the source makes, and is what lab.error_index writes."""

import ast
import io
import re
import tokenize

import pytest

from lab.error_index import ADVICE, CALLS, ERRORS, PACKAGES, PAGE, RETURNS, ROOT, area_of, code, messages, page, sources
from lab.source_texts import callee
from tfdist.cli.command import run

ROW = "CheckResult"
WRAPPERS = {
    ("bench/group.py", "_end"),
    ("bench/burn.py", "_measured"),
    ("bench/burn.py", "rows_of"),
    ("bench/collectives/plan.py", "plan_collectives"),
    ("bench/tune.py", "search_arms"),
    ("cli/command.py", "parse_args"),
    ("cli/command.py", "invoke"),
    ("cli/command.py", "_run"),
    ("cli/launch.py", "_checked"),
    ("launch/diagnosis/diagnose.py", "_diagnosis"),
    ("launch/doctor/preflight.py", "gpu_notes"),
    ("launch/doctor/preflight.py", "measure_neighbours"),
    ("launch/doctor/preflight.py", "with_free_ports"),
    ("launch/errors.py", "raise_problems"),
    ("launch/inherit/leader.py", "run"),
    ("launch/inherit/rendezvous.py", "_wait_at_leader"),
}
"""Functions that raise an error with the message of another one, or with what a record says."""
NO_ERRORS = {
    ("cli/bench.py", "_show_rest"),
    ("cli/check.py", "_check"),
    ("cli/command.py", "_fail"),
    ("cli/export.py", "_export_first"),
    ("cli/export.py", "export"),
    ("cli/manifest.py", "submit"),
    ("cli/run_launch.py", "run_launch"),
    ("cli/run_launch.py", "show_plan"),
    ("cli/sbatch.py", "submit"),
    ("cli/show/outcome.py", "_show_failure"),
    ("cli/show/outcome.py", "show_outcome"),
    ("cli/show/past.py", "follow"),
    ("cli/show/past.py", "show_end"),
    ("cli/stop.py", "stop"),
    ("launch/agent_program/template.py", "_exit_code"),
    ("models/training/export.py", ""),
    ("models/training/task.py", "run"),
    ("models/training/task.py", "warn"),
}
"""Functions that print a hint on stderr, or the message of another one."""
NO_WARNINGS = {
    ("bench/group.py", "_end"),
    ("bench/group.py", "_take_news"),
    ("bench/group.py", "trace"),
    ("bench/runner.py", "_repeat"),
    ("bench/runner.py", "run"),
    ("bench/runner.py", "start_group"),
    ("bench/session.py", "_more"),
    ("bench/tune.py", "_search"),
    ("cli/run_launch.py", "_run"),
    ("cli/run_launch.py", "note"),
    ("launch/doctor/preflight.py", "preflight"),
    ("launch/runs/writer.py", "_append"),
    ("launch/supervision/metrics.py", "published"),
    ("launch/supervision/rejoin.py", "_report"),
    ("launch/supervision/rejoin.py", "_run"),
    ("launch/supervision/straggler_watch.py", "_judge"),
    ("launch/supervision/straggler_watch.py", "_name"),
    ("launch/supervision/task_group.py", "note"),
    ("launch/supervision/watches.py", "check_config"),
    ("launch/supervision/watches.py", "note"),
}
"""Functions that tell how a job or bench goes on, or pass on the message of another function."""
INTERNAL = {
    "AssertionError", "AttributeError", "ConnectionRefusedError", "ConnectionResetError", "Exit", "FileNotFoundError",
    "InterruptedBenchError", "KeyboardInterrupt", "OSError", "PermissionError", "ProcessLookupError", "RuntimeError",
    "SystemExit", "TypeError", "ValueError",
}  # fmt: skip
"""Raised, but no message to a user: caught and put into another message, without a text, or a bug."""
WRONG = [
    "lunch",
    "launch --worker 2",
    "launch --strategy multiworker --workers 0 --dry-run",
    "launch --strategy mirrored --ps 2 --dry-run",
    "launch --strategy multiwork --dry-run",
    "launch --set warmup=1 --dry-run",
    "launch --set seed=x --dry-run",
    "launch --hosts h[3-1] --dry-run",
    "launch --hosts h1,h1 --dry-run",
    "launch --hosts h1 --transport carrier-pigeon --dry-run",
    "launch --env-file missing.env --dry-run",
    "launch --config missing.toml",
    "launch --resume missing --dry-run",
    "launch --max-restarts -1 --dry-run",
    "launch --checkpoint-every soon --dry-run",
    "launch --dataset mnist --dry-run",
    "launch --dry-run -- missing-program",
    "launch --inherit sagemaker -- python train.py",
    "bench --suite missing --dry-run",
    "bench --strategy mirrored --dry-run",
    "bench --fail-slower 0 --dry-run",
    "compare only-one",
    "compare missing also-missing",
    "report missing",
    "predict missing --devices 4",
    "collectives --sizes 4K:1K --dry-run",
    "runs --limit 0",
    "runs --prune 5 --yes",
    "logs missing",
    "stop last",
    "export missing model",
    "export",
    "stop a b",
    "doctor --burn 5s",
    "check",
    "tf-config --strategy mirrored",
    "sbatch launch",
    "manifest launch",
    "manifest --image a --name A_B launch --workers 2",
]
"""Command lines with an error, each of another part of the program."""


def pattern(text):
    """A regular expression for the messages that an entry stands for."""
    suggestion = r"(?:did you mean [^?]+\? Choose|choose) from .*"
    sentences = text.split("did you mean <name>? Choose from <names>")
    return re.compile(
        suggestion.join(".*".join(map(re.escape, re.split("<[^<>]+>", each))) for each in sentences), re.S
    )


PATTERNS = [pattern(text) for area in messages().values() for text in area]


def test_an_entry_stands_for_its_own_messages_only():
    assert not any(each.fullmatch("folder x: this sentence is in no program; write it first") for each in PATTERNS)


def test_the_page_is_that_of_the_source():
    """If not: python -m lab.error_index."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (
            "no step for <timeout> s: <task> is behind (step <steps>, the others <ahead>)",
            {"76"},
        ),  # by the code of `stalled`
        ("has the address of <other>, <endpoint>; give each its own with addr= in the hostfile", {"2"}),
        ("<faults>; see 'nvidia-smi -q' on the host, or --exclude it", {""}),
    ],
)
def test_a_message_has_the_exit_code_of_the_command_that_prints_it(text, codes):
    (found,) = [area[text] for area in messages().values() if text in area]
    assert found == codes


def calls_in_tokens(path):
    """The lines of a file on which an error is made, found without a syntax tree."""
    tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))
    for before, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        made = name.type == tokenize.NAME and name.string in ERRORS and after.string == "("
        if made and before.string not in ("class", "case", "|"):
            yield name.start[0]


def test_no_call_that_makes_an_error_is_missed():
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = {(str(path.relative_to(ROOT)), line) for path in paths for line in calls_in_tokens(path)}
    assert len(found) > 500
    assert {(each.path, each.line) for each in sources() if each.name in ERRORS} == found


def test_no_row_of_a_check_has_a_text_that_is_missed():
    """Those that are left have the text of a `Problem`, of a record, or of no error."""
    made = {(each.scope.module.path, each.scope.function.name) for each in code().calls if callee(each.node) == ROW}
    indexed = {(path, function) for path, function, name in CALLS if name == ROW}
    assert made - indexed == {
        ("bench/check.py", "result"),
        ("cli/check.py", "_check"),
        ("launch/doctor/checks.py", "_row"),
    }


def test_each_has_a_message_unless_it_passes_another_one_on():
    without = {(each.path, each.function) for each in sources() if not each.texts}
    assert without == WRAPPERS
    for each in sources():
        assert area_of(each.path).title


def test_nothing_else_is_raised_for_users():
    raised = set()
    for module in code().modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised.add(getattr(node.exc.func, "id", getattr(node.exc.func, "attr", "")))
    functions = {name for name in raised if name in code().functions}  # they return an error
    assert raised - functions - INTERNAL - ERRORS.keys() == {name for _, _, name in CALLS} & raised - INTERNAL


def test_what_is_printed_on_stderr_is_in_the_index_or_no_error():
    printed = set()
    for call in code().calls:
        assert isinstance(call.node, ast.Call)
        on_stderr = [
            key.value.value for key in call.node.keywords if key.arg == "err" and isinstance(key.value, ast.Constant)
        ]
        if on_stderr == [True] or ast.unparse(call.node.func) == "sys.stderr.write":
            name = callee(call.node)
            function = call.scope.function.name if call.scope.function else ""
            printed.add((call.scope.module.path, function, name))
    assert len(printed) > 20
    assert {(path, function) for path, function, name in printed - CALLS.keys()} == NO_ERRORS


def test_what_is_told_beside_a_job_is_in_the_index_or_no_error():
    said = set()
    for call in code().calls:
        target, function = ast.unparse(call.node.func), call.scope.function.name if call.scope.function else ""
        if target in ("Note", "note", "warn") or target.endswith(("tasks.note", "progress.note", "self.warn")):
            said.add((call.scope.module.path, function, callee(call.node)))
    assert len(said) > 20
    in_index = {each for each in said if CALLS.keys() & {each, (each[0], "", each[2])}}
    assert {(path, function) for path, function, _ in said - in_index} == NO_WARNINGS


def test_the_lists_of_the_program_are_those_of_the_source():
    assert {name for _, _, name in CALLS} <= {each.name for each in sources()}
    assert {name for _, name in RETURNS} <= {each.name for each in sources()}
    assert ADVICE.keys() <= {text for area in messages().values() for text in area}


@pytest.mark.parametrize("line", WRONG)
def test_a_real_message_is_in_the_index(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) != 0
    message = capsys.readouterr().err.strip().rpartition("tfdist: ")[2]
    assert any(each.fullmatch(message) for each in PATTERNS), message
