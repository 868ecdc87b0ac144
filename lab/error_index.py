"""Index of error messages: python -m lab.error_index writes docs/errors.md.

The messages are read from the source (lab/source_texts.py): all that the calls and functions listed here make. Tests
fail if a call makes a message that is not in the index, or if the page is not what this program writes.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.source_texts import Call, Code, Scope, callee
from tfdist.launch.errors import ExitCode

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"
PACKAGES = ("package", "cli", "launch", "strategies", "models", "jobs", "bench", "action")
ERRORS = {"TfdistError": "{0}", "MissingHardwareError": "{0}", "Problem": "{0}; {1}", "Diagnosis": "{0}"}
"""Classes whose objects are messages to users: the message, with the arguments of the call."""
CALLS = {
    ("action/measure.py", "bench", "write"): "{0}",
    ("bench/burn.py", "rows_of", "CheckResult"): "{3}",
    ("bench/check.py", "refused", "CheckResult"): "{3}",
    ("bench/group.py", "_end", "replace"): "<arm>: failed: {reason}",
    ("cli/__main__.py", "run_command", "write"): "{0}",
    ("cli/bench.py", "report_on", "echo"): "{0}",
    ("cli/collectives.py", "_report", "echo"): "{0}",
    ("cli/command.py", "", "_fail"): "{0}",
    ("cli/command.py", "_warn_of_variables", "echo"): "{0}",
    ("cli/launch.py", "", "TypeError"): "<file>: <key> = <value>: {0}",
    ("cli/report.py", "open_page", "echo"): "{0}",
    ("cli/result_folders.py", "list_skipped", "echo"): "{0}",
    ("jobs/exchange_checks.py", "check_replicas", "odd_number"): "{0}",
    ("launch/agent_program/agent.py", "", "_note_drop"): "<event> was dropped: {1}",
    ("launch/agents/messages.py", "decode", "ValueError"): "lost the agent ({0})",
    ("launch/agents/channel.py", "_receive", "ValueError"): "lost the agent ({0})",
    ("launch/doctor/preflight.py", "gpu_notes", "Note"): "{1}",
    ("launch/runs/writer.py", "", "warn"): "{0}",
    ("launch/supervision/metrics.py", "write", "note"): "{0}",
    ("launch/supervision/run_tasks.py", "", "Note"): "{1}",
    ("launch/supervision/supervise.py", "_report_loss", "note"): "{0}",
    ("launch/supervision/termination_log.py", "write", "echo"): "{0}",
    ("launch/supervision/watches.py", "", "OwnConfig"): "{0}",
    ("launch/supervision/watches.py", "_suspect", "note"): "{0}",
    ("launch/tensorflow_output.py", "", "Incompatibility"): "{1}: {2}",
    ("models/graph/sessions.py", "_end", "write"): "{0}",
    ("models/run.py", "record_of", "Record"): "{reason}",
    ("models/strategy_check.py", "judge", "refuted"): "the program did not train under <strategy>{0}; {1}",
    ("models/training/evaluate.py", "", "warn"): "warning: {0}",
    ("models/training/pace.py", "_warn", "write"): "{0}",
    ("models/training/restore.py", "", "warn"): "warning: {0}",
    ("models/training/saver.py", "", "warn"): "warning: {0}",
}
"""Other calls that make messages, by file, function (empty: all) and what is called."""
RETURNS = {
    ("cli/bench.py", "_not_compared"): "{0}",
    ("launch/diagnosis/behind.py", "_suspended"): "no step for <timeout> s: {0}",
    ("launch/diagnosis/behind.py", "_outside_tensorflow"): "no step for <timeout> s: {0}",
    ("launch/diagnosis/behind.py", "_fewer_steps"): "no step for <timeout> s: {0}",
    ("launch/diagnosis/behind.py", "_not_listening"): "no step for <timeout> s: {0}",
    ("launch/diagnosis/behind.py", "_busy"): "no step for <timeout> s: {0}",
    ("launch/diagnosis/evidence.py", "describe_ending"): "<task> {0}",
    ("launch/supervision/restarts.py", "decide"): "not restarted: {0}",
    ("launch/supervision/restarts.py", "alike_failures"): "not restarted: {0}",
    ("models/strategy_check.py", "judge"): "{0}",
}
"""Functions that return a message or, as the last of several values, a part of one."""
CODES = {
    ("cli/bench.py", "_not_compared"): "3 with --fail-slower",
    ("bench/check.py", "result"): "1",
    ("launch/agents/channel.py", "_receive"): "69",
    ("launch/agents/messages.py", "decode"): "69",
    ("models/graph/sessions.py", "_end"): "70",
    ("launch/doctor/preflight.py", "ask"): "2",
    ("launch/doctor/problems.py", "port_problem"): "2",
    ("launch/doctor/problems.py", "same_address"): "2",
    **dict.fromkeys((place for place in RETURNS if place[0] == "launch/diagnosis/behind.py"), "76"),
    ("launch/doctor/checks.py", "_different_gpus"): "",
    ("launch/doctor/checks.py", "_host_rows"): "",
    ("launch/doctor/checks.py", "_link_rows"): "",
    ("launch/doctor/problems.py", "broken_gpus"): "",
    ("launch/doctor/problems.py", "clock_problem"): "",
    ("launch/doctor/problems.py", "folder_problem"): "",
    ("launch/doctor/problems.py", "gpus_in_use"): "",
    ("launch/doctor/problems.py", "unseen_gpus"): "",
}
"""Exit codes that their calls do not show, by file and function; empty: the message alone changes none."""


@dataclass(frozen=True)
class Area:
    """A part of the page: the messages of some files."""

    title: str
    intro: str
    files: tuple[str, ...]
    """Paths, or their beginnings; the longest that fits decides."""


AREAS = (
    Area(
        "Command line and job file",
        "Options with their values: `tfdist COMMAND --help`. `<option>` is an option, or the variable or the file that sets it. "
        "What the parser of options says itself, such as `Missing argument 'RUN'` or `Got unexpected extra argument (x)`, ends with `; see 'tfdist COMMAND --help'`.",
        ("cli/__main__.py", "cli/command.py", "cli/launch.py", "cli/options.py", "cli/strategies.py", "cli/tf_config.py", "cli/show/",
         "cli/check.py", "jobs/options.py", "launch/quantities.py", "launch/text.py", "launch/environment.py"),
    ),
    Area(
        "Options of a training",
        "Which options a strategy takes: `tfdist strategies STRATEGY`, and [strategies.md](strategies.md); on GPUs [gpus.md](gpus.md).",
        ("jobs/checks.py", "jobs/exchange_checks.py", "jobs/presets.py", "jobs/plan.py", "jobs/launch_plan.py",
         "strategies/", "models/graph/"),
    ),
    Area("Data sets", "Data sets: [strategies.md](strategies.md).", ("models/datasets/",)),
    Area(
        "Hosts",
        "How hosts are named and reached: [multi-host.md](multi-host.md).",
        ("launch/hosts/", "launch/machine.py", "launch/job.py", "launch/cluster.py", "jobs/host_selection.py"),
    ),
    Area(
        "Checks of hosts, before a start",
        "Each message starts with the name of its host. A warning of `tfdist doctor` changes no exit code. "
        "What they mean: [multi-host.md](multi-host.md#when-a-launch-does-not-start).",
        ("launch/doctor/", "launch/agents/", "launch/hosts/transport.py", "cli/run_launch.py", "bench/burn.py"),
    ),
    Area(
        "Failures of a job",
        "The exit code is that of the task that failed first, unless the message has another one. What they mean: [failures.md](failures.md).",
        ("launch/diagnosis/", "launch/supervision/", "models/run.py"),
    ),
    Area(
        "Your own program",
        "What a program has to do: [convert.md](convert.md). Hints follow the message about the task.",
        ("models/custom/", "models/strategy_check.py", "launch/tensorflow_output.py", "launch/supervision/watches.py",
         "launch/agent_program/",
         "bench/arm_process.py", "bench/suites/command.py"),
    ),
    Area(
        "Checkpoints, restarts and export",
        "How a training is saved and continued: [checkpoints.md](checkpoints.md).",
        ("jobs/checkpoint_source.py", "jobs/recovery.py", "jobs/resume_source.py", "jobs/elastic.py", "models/checkpoints.py",
         "models/training/", "cli/export.py", "launch/supervision/rejoin.py", "launch/supervision/run_tasks.py"),
    ),
    Area(
        "Runs",
        "Listing, following and stopping runs: [running.md](running.md).",
        ("cli/runs.py", "cli/logs.py", "cli/stacks.py", "cli/stop.py", "cli/doctor.py", "launch/runs/", "launch/supervision/metrics.py", "launch/errors.py",
         "launch/console/"),
    ),
    Area(
        "Benches, suites and reports",
        "How a bench measures, and what a suite may hold: [measuring.md](measuring.md), [questions.md](questions.md).",
        ("bench/", "cli/bench.py", "cli/report.py", "cli/result_folders.py", "cli/tune.py", "models/record.py"),
    ),
    Area("Comparisons", "Two benches, or two versions: [compare.md](compare.md).", ("bench/compare/", "bench/against.py", "cli/compare.py", "action/")),
    Area("Collectives", "All-reduce by size: [collectives.md](collectives.md).", ("bench/collectives/", "cli/collectives.py", "models/collectives/")),
    Area("Predictions", "More devices, another network: [predict.md](predict.md).", ("bench/predict/", "cli/predict.py")),
    Area("Jobs of other launchers", "`--inherit`: [engines.md](engines.md).", ("launch/inherit/", "jobs/inherit.py")),
    Area(
        "Slurm and Kubernetes",
        "Batch scripts and manifests: [slurm.md](slurm.md), [kubernetes.md](kubernetes.md).",
        ("cli/sbatch.py", "cli/scheduler.py", "cli/manifest.py", "launch/kubernetes/", "jobs/manifest_plan.py"),
    ),
)  # fmt: skip
NAMES = {
    r"^tfdist: |\n+$": "",
    r"logs: <number>$": "logs: <folder>",
    r"<place>": " on <host>",
    r"<help hint>": " 'tfdist <command> --help'",
    r"<command path>": "tfdist <command>",
    r"\(<lines>\);": "(<what ssh or the host said>);",
    r"the suite (<path>|<name or file>|--strategy <strategy>)": "the suite <suite>",
}
"""What values are called that the source names otherwise, by regular expression."""
IMPOSSIBLE = re.compile(
    r"(?!Keras 3's fit).*; install tf_keras, which tf.keras is under tfdist|all-reduce <number> MB/s$"
)
"""Texts of a row that the code never chooses, as only one incompatibility shows before anything has started, or that
is no error."""
ADVICE = {
    "interrupted": "by Ctrl-C, or by a signal to tfdist",
    "<arm>: not compared with its base: one of them was not measured, or did not train under its strategy": "its log, or its warning in the report, says why",
    "the folder <requested> does not exist, so tasks run in <actual>; create it, or choose another with --chdir": "exit code 69 if there is no home folder to run in",
    "no turn was measured: no report": "the lines before say why",
    "no turn was measured: no report; logs: <folder>": "the lines before say why",
    "skipped <folder>: no records in it": "the other folders are read",
    "skipped <record>": "it cannot be read; the others are used",
    "incomplete record: <missing>": "the file was damaged; run the command that wrote it again",
    "incomplete <name>: <error>": "the file was damaged; run the command that wrote it again",
    "no checkpoint in <folder> can be read": "the lines before name the file that is damaged in each",
    "<target> cannot be written: <error>": "free some space, or choose another target",
    "<option>: <folder> cannot be read (<reason>)": "check its permissions",
    "<path>: cannot be read (<error>)": "an older checkpoint is tried",
    "checkpoint <prefix> cannot be read: <message>": "an older checkpoint is tried",
    "the trained model could not be saved in <folder> (<failure>)": "free some space, then `tfdist launch --resume last`",
    "<updates> updates were applied in <steps> steps": "a worker was restarted, or its updates were lost; see its log",
    "<arm>: its tasks measured different sizes in a turn": "the hosts have different versions of tfdist",
    "a spec of format '<format>': this tfdist reads format 1": "launcher and task have different versions of tfdist",
    "a spec with the unknown key '<unknown>'": "launcher and task have different versions of tfdist",
    "a spec with a wrong value: <error>": "launcher and task have different versions of tfdist",
    "<tasks> could not be started on <host>: <reason>": "check the path of its program, `--chdir` and `--python`",
    "<tasks> not started within --start-timeout <timeout> s": "check the load of its host, or give a longer `--start-timeout`",
    "<task> was killed by <signal name> on <host> (not by tfdist)": "ask the scheduler; look at the kernel log as root",
    "<task> was killed by <signal name> on <host>: out of memory": "smaller batch, fewer tasks per host, or a higher memory limit",
    "<task> is stopped (state T: SIGSTOP or a debugger)": "`kill -CONT PID`, or detach the debugger",
    "<task> exited with code 0 on <host> while <task> still needed it": "give all workers the same number of steps",
    "<task> exited with code 0 on <host> before it joined the cluster; <waiting> wait for it": "every worker must run the training",
    "no step for <timeout> s: <task> on <host> hangs": "its stacks are in stacks.txt, beside its logs",
}
"""What to do about messages that do not say it, by their text."""


@dataclass
class MessageSource:
    """A call or a function that makes messages."""

    path: str
    line: int
    name: str
    """What is called, or the function."""
    function: str
    """The one around the call."""
    texts: tuple[str, ...]
    """Empty if it only passes the message of another one on."""
    code: str
    """Exit code."""


@cache
def code() -> Code:
    """The source."""
    return Code(ROOT, PACKAGES)


@cache
def sources() -> tuple[MessageSource, ...]:
    """All calls and functions that make messages, in the order of the files."""
    return tuple(sorted(_sources(), key=lambda each: (each.path, each.line)))


def _sources() -> Iterator[MessageSource]:
    for call in code().calls:
        name, function, path = callee(call.node), _function(call.scope), call.scope.module.path
        template = ERRORS.get(name) or CALLS.get((path, function, name)) or CALLS.get((path, "", name))
        arguments = {str(at): each for at, each in enumerate(call.node.args)}
        arguments |= {each.arg: each.value for each in call.node.keywords if each.arg}
        if name == "echo" and "err" not in arguments:  # it goes to stdout
            continue
        if template and re.findall(r"\{(\w+)\}", template)[0] in arguments:
            texts = _texts(template, arguments, call.node, call.scope)
            yield MessageSource(path, call.node.lineno, name, function, texts, _exit_code(call, name, function))
    for (path, name), template in RETURNS.items():
        for scope in (each for each in code().functions[name] if each.module.path == path):
            texts = [text for node, of in scope.returns for text in _texts(template, {"0": _last(node)}, node, of)]
            line = scope.function.lineno if scope.function else 0
            yield MessageSource(path, line, name, name, tuple(dict.fromkeys(texts)), CODES.get((path, name), ""))


def _function(scope: Scope) -> str:
    return scope.function.name if scope.function else ""


def _last(node: ast.expr) -> ast.expr:
    return node.elts[-1] if isinstance(node, ast.Tuple) else node


def _texts(template: str, arguments: dict[str, ast.expr], at: ast.expr, scope: Scope) -> tuple[str, ...]:
    """The messages with words of their own; of those that differ in brackets only, the first."""
    parts = re.split(r"\{(\w+)\}", template)
    if len(parts) == 3:
        found = [
            f"{parts[0]}{text}{parts[2]}" for text in code().texts((arguments[parts[1]], scope)) if _own_words(text)
        ]
    else:
        nodes: list[ast.expr] = [ast.Constant(part) for part in parts]
        nodes[1::2] = [ast.FormattedValue(arguments[part], -1) for part in parts[1::2]]
        found = code().texts((ast.copy_location(ast.JoinedStr(nodes), at), scope))
    for name, words in NAMES.items():
        found = [re.sub(name, words, text) for text in found if not IMPOSSIBLE.match(text)]
    found = list({re.sub(r"\([^()]*\)", "()", text): text for text in reversed(found)}.values())[::-1]
    # one that starts with any option stands for those that start with a certain one
    starts = {
        rest for first, colon, rest in (text.partition(": ") for text in found) if re.fullmatch("<[^<>]+>", first)
    }
    return tuple(text for text in found if text.startswith("<") or text.partition(": ")[2] not in starts - {""})


def _own_words(text: str) -> int:
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"<[^>]*>", "", text)))


def _exit_code(call: Call, name: str, function: str) -> str:
    """What the source says about the exit code: a number, `128+n`, or nothing."""
    path = call.scope.module.path
    if (path, function) in CODES:
        return CODES[path, function]
    given = call.argument(1, "exit_code")
    if name == "Problem":
        return "69"
    if name not in (*ERRORS, "_fail"):
        return ""
    return "2" if given is None else _number(given[0])


def _number(node: ast.expr) -> str:
    match node:
        case ast.Attribute(ast.Name("ExitCode"), member):
            return str(ExitCode[member].value)
        case ast.IfExp(_, first, second):
            return f"{_number(first)} or {_number(second)}"
        case ast.Constant(number):
            return str(number)
        case ast.Name("UNREADABLE"):
            return "1"
    return "128+n" if "signal" in ast.unparse(node).lower() or "exit_code(" in ast.unparse(node) else ""


def area_of(path: str) -> Area:
    """The part of the page that has the messages of a file.

    Raises:
        LookupError: none has it.
    """
    fitting = [(len(prefix), area.title) for area in AREAS for prefix in area.files if path.startswith(prefix)]
    if not fitting:
        raise LookupError(f"{path}: in no area")
    return next(area for area in AREAS if area.title == max(fitting)[1])


def messages() -> dict[str, dict[str, set[str]]]:
    """Exit codes of each message, by area and text."""
    found: dict[str, dict[str, set[str]]] = {area.title: {} for area in AREAS}
    for source in sources():
        for text in source.texts:
            found[area_of(source.path).title].setdefault(text, set()).add(source.code)
    return found


def page() -> str:
    """The text of docs/errors.md."""
    lines = [HEAD]
    for area in AREAS:
        lines += [f"## {area.title}", "", area.intro, ""]
        lines += sorted((_item(text, codes) for text, codes in messages()[area.title].items()), key=_order)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _item(text: str, codes: set[str]) -> str:
    quotes = "``" if "`" in text else "`"
    padding = " " if quotes == "``" else ""
    notes = [f"exit code {' or '.join(sorted(codes - {''}))}"] if codes - {"2", ""} else []
    notes += [ADVICE[text]] if text in ADVICE else []
    return f"- {quotes}{padding}{text}{padding}{quotes}" + (f": {'; '.join(notes)}" if notes else "")


def _order(item: str) -> str:
    return re.sub(r"<[^>]*>|[^a-z0-9]", "", item.lower())


HEAD = """# Error messages

An index of what tfdist prints when something is wrong, for a search by the text of a message. `<name>` stands for a value. Each message says what is
wrong, then what to do; what comes after `tfdist: ` on stderr is here without it. Wrong input ends with exit code 2, before anything has started; other exit codes are given
here. All of them are in [how-it-works.md](how-it-works.md#exit-codes).

Messages of TensorFlow and of your program are not here: [failures.md](failures.md) shows how tfdist finds the one that matters. This page is generated
from the source.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
