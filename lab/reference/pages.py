"""The reference pages of the site, as Markdown: from the commands, tables and docstrings of the code."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import tfdist.bench
import tfdist.measure
from lab.reference.commands import Command, Parameter, commands
from lab.schemas import schemas
from tfdist.bench.suites.arm import NOT_FOR_BENCHES, TRAINING_KEYS
from tfdist.bench.suites.suite import Suite
from tfdist.cli.command import SCHEDULERS, SENTENCES
from tfdist.cli.launch import NOT_KEPT
from tfdist.jobs.options import KEYS, TRAINING, Bytes, Option, Seconds
from tfdist.launch.errors import SIGNALS, ExitCode
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice, field_types
from tfdist.strategies.options import variable_of

FOLDER = "reference"
KINDS: Mapping[Any, str] = {
    Seconds: "time",
    Bytes: "size",
    Path: "path",
    str: "text",
    float: "number",
    int: "integer",
    bool: "true or false",
    list[str]: "list of texts",
}
API = (
    *(f"tfdist.cli.python_api.{name}" for name in ("run", "Result", "RunFailed", "check")),
    "tfdist.strategies.current",
    *(f"tfdist.measure.{name}" for name in tfdist.measure.__all__),
    *(f"tfdist.bench.{name}" for name in tfdist.bench.__all__),
    "tfdist.launch.errors.TfdistError",
)
OF_TASKS = {
    "TF_CONFIG": "the cluster and the task's place in it, as TensorFlow reads it",
    "CUDA_VISIBLE_DEVICES": "the task's GPUs",
    "TF_GRPC_REUSE_PORT": "TensorFlow binds the port that tfdist holds for the task",
    "TFDIST_SPEC": "the built-in training, JSON",
    "TFDIST_COLLECTIVE_SPEC": "what a task of `tfdist collectives` measures, JSON",
    "TFDIST_STRATEGY_CHOICE": "the strategy and its options, JSON",
    "TFDIST_TASK": "the task's name, as `worker-0`",
    "TFDIST_AGENT": "number of the agent that started it, by which its processes are found",
    "TFDIST_EVENTS_FD": "descriptor to write events to",
    "TFDIST_BARRIER_FD": "descriptor to read releases from",
    "TFDIST_STACKS_FD": "descriptor to write stacks to",
    "TFDIST_TURNS": "the task is measured in turns",
    "TFDIST_ATTEMPT": "0, and one more with each restart",
    "TFDIST_ARM_DIR": "folder for what a program of your own writes",
    "TFDIST_COPY_DIR": "folder that was copied to the task's host, with `--copy` or a function of `tfdist.run`",
    "TFDIST_CHECKPOINTING": "when to save checkpoints and what to continue from, JSON",
    "TFDIST_CHECKPOINT_DIR": "folder of the checkpoints",
    "TFDIST_TRACE_DIR": "folder of the trace, with `--trace`",
    "TFDIST_INHERITED": "the other tasks have launchers of their own, with `--inherit`",
}
OF_TFDIST = {
    "TFDIST_ATTEMPT": "with `--inherit`: number of the attempt, if the other launcher restarts the job",
    "TFDIST_BARRIER_SECRET": "with `--inherit`: what all tasks must know to meet, on a network that others share",
    "TFDIST_INDEX": "the index of a pod, in a manifest",
    "TFDIST_TERMINATION_LOG": "file that gets the reason of the end. Default in a pod: /dev/termination-log",
    "TFDIST_TEMPLATE": "0: execute each task's Python instead of forking it from one that has imported TensorFlow",
}
"""Variables of tfdist itself that no option has."""


@cache
def pages() -> dict[str, str]:
    """Each page by its path in the site; the first is the list of commands, and those of the commands follow."""
    return {
        f"{FOLDER}/commands.md": _commands_page(),
        **{f"{FOLDER}/{command.name}.md": _command_page(command) for command in commands()[1:]},
        f"{FOLDER}/job-file.md": _job_file_page(),
        f"{FOLDER}/suite.md": _suite_page(),
        f"{FOLDER}/variables.md": _variables_page(),
        f"{FOLDER}/exit-codes.md": _exit_codes_page(),
        f"{FOLDER}/python.md": _python_page(),
        f"{FOLDER}/schemas.md": _schemas_page(),
    }


def code(text: str) -> str:
    """The text as code; empty if it is."""
    return text and f"`{text}`"


def markdown(text: str) -> str:
    """A text of the code in Markdown: options are code, as is what stands in backquotes; all else is text."""
    parts = re.split(r"(`[^`]+`|(?<![\w-])--[a-z][a-z0-9-]*)", text)
    marked = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"} | {each: f"\\{each}" for each in "\\*_[]{}"}
    for at, part in enumerate(parts):
        parts[at] = code(part.strip("`")) if at % 2 else "".join(marked.get(each, each) for each in part)
    return "".join(parts)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells in Markdown."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _commands_page() -> str:
    (root, *others) = commands()
    rows = ((f"[{each.name}]({each.name}.md)", markdown(SENTENCES[each.name])) for each in others)
    return "\n".join(
        (
            "# Commands\n",
            _block([root.usage]),
            table(("command", "what it does"), rows),
            "Each option can also be set by an [environment variable](variables.md); those of `launch` also in a",
            "[job file](job-file.md). Every command ends with an [exit code](exit-codes.md).\n",
            *_panels(root),
            "`tfdist --install-completion` installs the completion of commands, options and values for the shell that it",
            "runs in: bash, zsh or fish. In zsh the first Tab of a window only loads it.\n",
        )
    )


def _command_page(command: Command) -> str:
    first, *rest = command.paragraphs
    taken = [f"[{name}]({name}.md)" for name in SCHEDULERS.get(command.name, ())]
    return "\n".join(
        (
            f"# {command.title}\n",
            f"{markdown(first)}\n",
            _block([command.usage]),
            *(f"{markdown(paragraph)}\n" for paragraph in rest),
            *([f"COMMAND is one of {', '.join(taken)}, with its own options.\n"] if taken else ()),
            "## Examples\n",
            _block(command.examples),
            *_panels(command),
        )
    )


def _block(lines: Iterable[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


def _panels(command: Command) -> Iterable[str]:
    for panel, parameters in command.panels().items():
        yield f"## {panel or 'Arguments'}\n"
        yield table(("", "meaning", "variable"), map(_parameter_row, parameters))


def _parameter_row(parameter: Parameter) -> tuple[str, str, str]:
    return code(parameter.words), markdown(parameter.text), code(parameter.variable)


def _job_file_page() -> str:
    launch = next(command for command in commands() if command.name == "launch")
    given = [parameter for parameter in launch.parameters if parameter.key not in (*NOT_KEPT, "help")]
    options = ((code(each.key), kind_of(each.kind), markdown(each.text)) for each in given)
    return "\n".join(
        (
            "# Job files and keys of --set\n",
            "`tfdist launch --config job.toml` takes its options from a TOML file; an option of the command line or a",
            "variable replaces the file's. A time is a number of seconds, or a text as `10m`; a size is a number of bytes,",
            "or a text as `4M`, with K, M and G for 2 to the 10, 20 and 30.\n",
            _block(('strategy = "multiworker"', "workers = 2", "seed = 1", 'command = ["python", "train.py"]')),
            "## Options\n",
            table(("key", "type", "meaning"), options),
            "## Keys of --set\n",
            "These are keys of a job file, and of `--set` (`--set seed=1`), and each has a variable of its own",
            f"(`{variable_of('seed')}`). `tfdist strategies mirrored` lists those that have an effect under a strategy.\n",
            table(("key", "type", "meaning"), (_setting_row(key) for key in KEYS.values())),
        )
    )


def _setting_row(key: Option) -> tuple[str, str, str]:
    return code(key.name), kind_of(key.kind), markdown(key.text)


def kind_of(kind: Any) -> str:
    """A type in words; a closed choice as its values."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(code(str(each)) for each in kind)
    return KINDS[kind]


def _suite_page() -> str:
    docs = attribute_docs(Suite)
    plain = Suite(()).to_json()
    keys = [key for key in plain if key != "arms"]
    field_of = {name.removesuffix("_s"): name for name in docs}
    rows = [(code(key), markdown(docs[field_of[key]]), "" if key == "name" else _default(plain[key])) for key in keys]
    arm_keys = [key for key in TRAINING_KEYS if key not in NOT_FOR_BENCHES]
    return "\n".join(
        (
            "# Suites\n",
            "A suite is a TOML file for `tfdist bench --suite my.toml`; [Your own suite](../your-program.md#your-own-suite)",
            "has an example. These keys are of the whole suite:\n",
            table(("key", "meaning", "default"), rows),
            "Times are numbers of seconds, or texts as `10m`.\n",
            table(
                ("table", "meaning"),
                (
                    ("`[defaults]`", "Keys of an arm, for all arms that do not set them."),
                    ("`[matrix]`", "Keys of an arm with lists of values, whose combinations are arms; `exclude` is a list of"
                     " tables, and an arm that has all values of one of them is left out."),
                    ("`[[arms]]`", "One arm."),
                ),
            ),
            "## Keys of an arm\n",
            table(
                ("key", "type", "meaning"),
                (
                    ("`name`", "text", "Unique in the suite. An arm of a matrix is named by its values."),
                    ("`hosts`", "integer", "Number of hosts that the arm runs on. Default: 1."),
                    ("`command`", "list of texts", "A program of your own in place of the built-in training."),
                    *map(_arm_row, arm_keys),
                ),
            ),
        )
    )  # fmt: skip


def _default(value: Any) -> str:
    return "" if value in (None, "") else code(json.dumps(value))


def _arm_row(key: str) -> tuple[str, str, str]:
    option = next((row for row in TRAINING if row.name == key), None)
    if option is not None:
        return code(key), kind_of(option.kind), markdown(option.text)
    docs = attribute_docs(TrainingSpec) | attribute_docs(StrategyChoice)
    return code(key), kind_of(field_types(TrainingSpec)[key]), markdown(docs[key])


def attribute_docs(kind: type) -> dict[str, str]:
    """The docstring of each attribute of a class that has one, as one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, behind in zip(tree.body, tree.body[1:], strict=False):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        doc = behind.value if isinstance(behind, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(doc, ast.Constant):
            found[target.id] = " ".join(str(doc.value).split())
    return found


def _variables_page() -> str:
    takers: dict[str, tuple[str, list[str]]] = {}
    for command in commands()[1:]:
        for parameter in filter(lambda each: each.variable, command.parameters):
            option = parameter.words.partition(" <")[0]
            takers.setdefault(parameter.variable, (option, []))[1].append(f"[{command.name}]({command.name}.md)")
    options = ((code(name), code(option), ", ".join(names)) for name, (option, names) in sorted(takers.items()))
    settings = sorted((code(variable_of(key)), code(f"--set {key}=VALUE")) for key in KEYS)
    return "\n".join(
        (
            "# Environment variables\n",
            "An option of the command line replaces its variable, and a variable replaces the key of a job file. A variable",
            "that starts with `TFDIST_` and is close to one of these gets a warning. Of an option that can be repeated the",
            "variable has all values, with spaces between them; a switch is `1` or `0`.\n",
            "## Options\n",
            table(("variable", "option", "commands"), options),
            "## Keys of --set\n",
            table(("variable", "key"), settings),
            "## Other variables that tfdist reads\n",
            table(("variable", "meaning"), ((code(name), text) for name, text in OF_TFDIST.items())),
            "## Variables that tfdist sets for a task\n",
            "They cannot be forwarded with `--env`. [The protocol](../protocol.md) has those that a program of your own reads.\n",
            table(("variable", "meaning"), ((code(name), text) for name, text in OF_TASKS.items())),
        )
    )


def _exit_codes_page() -> str:
    docs = attribute_docs(ExitCode)
    rows = [(str(int(each)), markdown(docs[each.name])) for each in ExitCode]
    return "\n".join(
        (
            "# Exit codes\n",
            "All commands end with one of these. Any other code is that of the task that failed first: tfdist ends with the",
            f"code of the culprit, and with {SIGNALS} and the number of the signal if a signal ended it.\n",
            table(("code", "meaning"), rows),
            "[When a job fails](../failures.md) says how the culprit is found, and what its sentence means. With `--json`",
            "the last line of stdout has the code of a job or of wrong input as `exit_code`, with the `reason`.",
        )
    )


def _python_page() -> str:
    return "\n".join(
        (
            "# Python\n",
            "All that a program needs of tfdist. `import tfdist` imports no TensorFlow; the functions below do when they",
            "need it.\n",
            *(f"::: {name}\n" for name in API),
        )
    )


def _schemas_page() -> str:
    parts = []
    for name, schema in schemas().items():
        parts += [f"## {name.partition('.')[0]}\n", f"{schema['title']}: [{name}](../schemas/{name})\n"]
        kinds = schema.get("oneOf")
        if kinds:
            rows = ((code(each["title"]), ", ".join(map(code, each["properties"]))) for each in kinds)
            parts.append(table(("kind", "fields"), rows))
        else:
            needed = schema["required"]
            names = ((code(each), "yes" if each in needed else "") for each in schema["properties"])
            parts.append(table(("field", "always"), names))
    return "\n".join(
        (
            "# JSON Schemas\n",
            "What tfdist writes. Fields may be added within a `format`: ignore those that you do not know.\n",
            *parts,
        )
    )
