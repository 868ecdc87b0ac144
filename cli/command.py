"""What all subcommands share: help, the words that give their options, and one sentence for wrong input."""

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import tfdist
from tfdist.cli.show.output import finish_output
from tfdist.jobs.options import EXPECTED, KEYS, OPTIONS, PANELS, Bytes, Seconds, choices_of
from tfdist.launch.agent_program.folders import UnsafeFolderError
from tfdist.launch.environment import COMPUTED, WITHOUT_OPTION
from tfdist.launch.errors import SIGNALS, ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.redact import redact_command, redact_value, safe_text
from tfdist.launch.text import check_name, did_you_mean, plain
from tfdist.launch.this_command import carried_out
from tfdist.launch.threads import NO_PROCESSES, is_limit
from tfdist.models.spec import INHERITED
from tfdist.strategies.options import fix_of_choice, option_words, variable_of

SENTENCES = {
    "launch": "Run a training: the built-in MobileNetV2, or your program.",
    "runs": "List the recent runs and benches, the newest first.",
    "logs": "Print what the tasks of a run wrote.",
    "stacks": "Print what all tasks of a running job are doing now.",
    "stop": "Stop a run and wait until it has ended.",
    "export": "Write the model of the last checkpoint of a run.",
    "check": "Run your program for a few steps under each strategy.",
    "bench": "Measure every arm of a suite, in turns.",
    "tune": "Find the fastest options of a strategy.",
    "collectives": "Measure all-reduce and other collectives by size.",
    "report": "Write a report of the records in DIR; nothing is run.",
    "compare": "Show which arms became faster or slower between two benches.",
    "predict": "Predict images/s on more devices or another network.",
    "doctor": "Check whether a job could start.",
    "strategies": "List the strategies, their options and their Keras support.",
    "tf-config": "Print the TF_CONFIG of every task.",
    "sbatch": "Print a Slurm batch script that runs another command.",
    "manifest": "Print a Kubernetes manifest that runs another command.",
}
"""The subcommands, each with the first sentence of its help: the list of them imports none."""
SCHEDULERS = {"sbatch": ("launch", "bench", "tune", "collectives"), "manifest": ("launch", "bench")}
"""Commands that print how a scheduler runs another command: which ones."""


def _listed_command(name: str) -> TyperCommand:
    """A command for a list; a narrow terminal would cut its sentence if that were only its help."""
    return TyperCommand(name, help=SENTENCES[name], short_help=SENTENCES[name])


class Commands(TyperGroup):
    """The list of subcommands."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.commands = {name: _listed_command(name) for name in SENTENCES}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand.

        Raises:
            TfdistError: it does not exist.
        """
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise TfdistError(f"no command {args[0]!r}: {did_you_mean(args[0], self.commands)}")
        name, _, rest = super().resolve_command(ctx, args)
        command = name and command_named(name)
        if command and not ctx.resilient_parsing:
            _warn_of_variables(command)
        return name, command, rest


def _warn_of_variables(command: Any) -> None:
    """Warn of variables that no command reads, and whose names are close to one that this command reads."""
    known = {
        *COMPUTED,
        *WITHOUT_OPTION,
        INHERITED,
        *map(variable_of, KEYS),
        *(param.envvar for param in command.params),
    }
    unknown = {name for name in os.environ if name.startswith("TFDIST_")} - known
    names = [name[7:] for name in known if name]
    near = {name: match for name in sorted(unknown) for match in get_close_matches(name[7:], names, n=1, cutoff=0.75)}
    if near:
        # imported only now: pandas comes with them, which takes a second, and 130 MB for as long as a launch runs
        others = {param.envvar for name in SENTENCES for param in command_named(name).params}
        for name in sorted(near.keys() - others):
            typer.echo(plain(f"warning: {name}: no such variable; did you mean TFDIST_{near[name]}?"), err=True)


def command_named(name: str) -> Any:
    """The command of this name, imported: the function. Its help is the docstring."""
    word = name.replace("-", "_")
    module = import_module(f"{__package__}.{word}")
    function: Callable[..., Any] = getattr(module, word)
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if name in SCHEDULERS:
        app.info.name = name
        app.callback(cls=Scheduled, subcommand_metavar="COMMAND ...", epilog=EPILOG)(function)
    else:
        with_program = "command" in signature(function).parameters  # what follows the program are its own options
        settings = {"allow_interspersed_args": not with_program}
        app.command(name, cls=Command, epilog=EPILOG, context_settings=settings)(function)
    return typer.main.get_command(app)


EPILOG = "Each option can also be set by an environment variable, for example --batch-size by TFDIST_BATCH_SIZE."
_NOTATIONS = {Seconds: "<time>", Bytes: "<size>"}
_ANY_TEXT = ("command", "env")
"""Parameters whose values reach the tasks as they are."""


class Command(TyperCommand):
    """A subcommand. Its help is in panels, which take a quarter of a second to load."""

    def __init__(self, *args: Any, **values: Any) -> None:
        """Sort the options by panel, as the help lists them."""
        super().__init__(*args, **values)
        panels = {panel: at for at, panel in enumerate(PANELS)}
        self.params.sort(key=lambda param: panels.get(getattr(param, "rich_help_panel", None) or "", -1))

    def get_params(self, ctx: Any) -> Any:
        """The options and arguments, with short placeholders for the values of options."""
        return _with_placeholders(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the options; the keys of --set also from variables and from the job file."""
        try:
            rest = super().parse_args(ctx, _with_this_folder(args))
        except TfdistError as error:
            raise TfdistError(f"{error}{sources(str(error), ctx)}", error.exit_code) from error
        if "set" in ctx.params:
            source = ctx.get_parameter_source("set")
            given: list[str] = []
            if source is not None and source.name != "DEFAULT_MAP":
                given = ctx.params["set"] or []
            variables = {key: os.environ.get(variable_of(key)) for key in KEYS}
            words = [f"{key}={value}" for key, value in variables.items() if value]
            ctx.params["set"] = [*(ctx.default_map or {}).get("set", ()), *words, *given]
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help. An option that is off by default is not shown with its --no- form."""
        for param in self.params:
            if isinstance(param, TyperOption) and param.is_flag and not param.default:
                param.secondary_opts = []
        with _laid_out(self, formatter):
            super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            TfdistError: as the command raises it, with where its values came from; a value has a control character; or
                interrupted.
        """
        try:
            _check_texts(ctx)
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Typer would exit without a message
            raise TfdistError("interrupted", ExitCode.INTERRUPTED) from None
        except TfdistError as error:
            raise TfdistError(f"{error}{sources(str(error), ctx)}", error.exit_code) from error


def _with_this_folder(args: list[str]) -> list[str]:
    """The words with the current folder after a `--copy` that names none."""
    own = args.index("--") if "--" in args else len(args)
    words = [
        f"{word}=." if word == "--copy" and following.startswith("-") else word
        for word, following in pairwise([*args[:own], "--"])
    ]
    return [*words, *args[own:]]


class Scheduled(TyperGroup):
    """A command whose options precede another command, as those of srun do: it prints how to run that command."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.commands = {name: _listed_command(name) for name in SCHEDULERS[str(self.name)]}

    def get_params(self, ctx: Any) -> Any:
        """The options, with short placeholders for their values."""
        return _with_placeholders(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with _laid_out(self, formatter):
            super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the other command.

        Raises:
            TfdistError: it does not run under this scheduler.
        """
        _check_texts(ctx)
        if args[0] not in self.commands and not ctx.resilient_parsing:
            known = ", ".join(self.commands)
            what = "cannot be scheduled" if args[0] in SENTENCES else "no such command"
            raise TfdistError(f"{self.name} {args[0]}: {what}; after its options, {self.name} takes one of {known}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and command_named(name), rest


_LEAST_PANEL = 80
"""Characters of a terminal with room for panels; on a narrower one they would cut the names of options."""


_LONGEST_BESIDE_HELP = 22
"""Characters of an option on such a terminal; the help of a longer one starts below it."""


@contextmanager
def _laid_out(command: Any, formatter: Any) -> Iterator[None]:
    """Let the help of a command fit the width of the terminal, in panels where they fit."""
    paragraphs = (command.help or "").split("\n\n")  # the line breaks of all but examples are those of the source
    texts = (text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs)
    command.help = "\n\n".join(texts)
    if shutil.get_terminal_size().columns < _LEAST_PANEL:
        command.rich_markup_mode = None
        formatter.write_dl = partial(formatter.write_dl, col_max=_LONGEST_BESIDE_HELP)
        command.help = _unbroken(command.help)
        for param in command.params:
            param.help = _unbroken(param.help or "").replace("\\[", "[")  # see options.option
    yield
    formatter.buffer[:] = [text.replace(_HYPHEN, "-") for text in formatter.buffer]


_HYPHEN = "\N{NON-BREAKING HYPHEN}"


def _unbroken(text: str) -> str:
    """The text with hyphens at which Typer breaks no line: names of options would be broken there."""
    return text.replace("-", _HYPHEN)


def _with_placeholders(params: Any) -> Any:
    for param in params:
        kind = param.type_descriptor.annotation if isinstance(param, TyperOption) else None
        if kind in _NOTATIONS:
            param.metavar = _NOTATIONS[kind]
        elif isinstance(param, TyperOption):
            if param.is_flag:
                param.metavar = ""
            elif param.multiple:
                param.metavar = "<str>"
            elif choices_of(kind):
                param.metavar = "<name>"
    return params


def given_words(ctx: typer.Context, without: Collection[str], fix: str) -> list[str]:
    """The words that give a command its values, whether the command line, a variable or a file did.

    Secrets of --env are left out: a launch copies them from its environment.

    Args:
        ctx: of the command.
        without: parameters that are left out.
        fix: where else a secret can be given.

    Raises:
        TfdistError: an option other than --env, or the program of the user, holds a secret.
    """
    words: list[str] = []
    for param in ctx.command.params:
        name = str(param.name)
        value = ctx.params.get(str(param.name))
        source = ctx.get_parameter_source(name)
        if name in (*without, "command", "config") or source is None or value is None:
            continue
        if name == "env":
            value = [text.partition("=")[0] if text in secrets(ctx) else text for text in value]
        if value is False and not param.secondary_opts:  # of a file or variable; there is no --no-NAME
            continue
        if name == "set" or source.name != "DEFAULT":
            words += option_words(name, value)
    command = ctx.params.get("command")
    program = ["--", *command] if command else []
    if redact_command([*words, *program]) != shlex.join([*words, *program]):
        raise TfdistError(f"{redact_command([*words, *program])}: holds a secret, which others could read; {fix}")
    return words if "command" in without else [*words, *program]


def secrets(ctx: typer.Context) -> list[str]:
    """The values of --env, as NAME=VALUE, that hold a secret."""
    pairs = [(text, *text.partition("=")[::2]) for text in ctx.params.get("env") or ()]
    return [text for text, name, value in pairs if redact_value(name, value) != value]


def sources(sentence: str, ctx: Any) -> str:
    """The variables and the file that gave the options of a message, in brackets; empty if the command line did."""
    mentioned = {word.strip(":;,.'()").partition("=")[0] for word in sentence.split()}
    found = []
    for param in ctx.command.params:
        origin = ctx.get_parameter_source(param.name)
        if origin is not None and mentioned & {*param.opts, *param.secondary_opts}:
            if origin.name == "ENVIRONMENT":
                found.append(param.envvar)
            if origin.name == "DEFAULT_MAP":
                found.append(str(ctx.params.get("config")))
    found += [variable_of(key) for key in KEYS if key in mentioned and variable_of(key) in os.environ]
    in_file = {word.partition("=")[0] for word in (ctx.default_map or {}).get("set", ())}
    if mentioned & in_file:
        found.append(str(ctx.params.get("config")))
    return f" (set by {', '.join(dict.fromkeys(found))})" if found else ""


def _check_texts(ctx: Any) -> None:
    for param in ctx.command.params:
        if param.name in _ANY_TEXT:
            continue
        value = ctx.params.get(param.name)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str | Path):
                check_name(param.opts[0] if isinstance(param, TyperOption) else param.metavar.rstrip("."), str(text))


def usage_sentence(error: Any, arguments: list[str]) -> str:
    """The message about a wrong command line: the option with its value, then how to fix it.

    Args:
        error: a usage error that Typer raised.
        arguments: the command line, which Typer's own message leaves out.
    """
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    words = [] if ctx else [word for word in arguments[:1] if word in SENTENCES]
    help_hint = f"see '{ctx.command_path if ctx else ' '.join(['tfdist', *words])} --help'"
    if hasattr(error, "possibilities"):
        return f"{error.option_name}: no such option; {_replacement(error, help_hint)}"
    if ctx is None or not isinstance(param, TyperOption):
        option = f"{error.option_name}: " if getattr(error, "option_name", None) else ""
        return f"{option}{' '.join(error.format_message().split()).rstrip('.')}; {help_hint}"
    name = param.opts[0]
    kind = param.type_descriptor.annotation
    if type(error).__name__ == "MissingParameter":
        return f"{name}: missing option; {help_hint}"
    value = str(_value(ctx, param, arguments) or "''")
    fix = EXPECTED.get(kind, error.message.rstrip("."))
    if choices := choices_of(kind):
        fix = fix_of_choice(str(param.name), value.strip("'"), choices)
    return f"{name} {value}: {fix}{sources(name, ctx)}"


def _value(ctx: Any, param: TyperOption, arguments: list[str]) -> Any:
    """The value of an option that could not be read."""
    parser = ctx.command.make_parser(ctx)
    for at, word in enumerate(arguments, 1):
        with suppress(typer.TyperException):  # a value before the command may be the same word
            if word == ctx.info_name and (value := parser.parse_args(arguments[at:])[0].get(param.name)):
                return value
    return os.environ.get(str(param.envvar)) or (ctx.default_map or {}).get(param.name)


def _replacement(error: Any, help_hint: str) -> str:
    name = error.option_name.removeprefix("--").replace("-", "_")
    key = name.removeprefix("no_")
    if key in KEYS and any(param.name == "set" for param in error.ctx.command.params):
        return f"use --set {key}={'false' if key != name else 'VALUE'}"
    if error.ctx.info_name in SCHEDULERS and key in {*KEYS, "set", *(row.name for row in OPTIONS)}:
        return f"it belongs to the command: write '{error.ctx.command_path} ... launch {error.option_name}'"
    near = get_close_matches(name, [each.removeprefix("--") for each in error.possibilities or ()], n=1)
    nearest = f"did you mean --{near[0]}? See" if near else "see"
    return f"{nearest}{help_hint.removeprefix('see')}"


app = typer.Typer(
    name="tfdist",
    cls=Commands,
    rich_markup_mode=None,  # plain help for the list of commands: rich takes longer to load
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"tfdist {tfdist.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Run and measure TensorFlow's distributed training.

    'tfdist COMMAND --help' shows the options of a command, with examples.
    """


def run(arguments: list[str]) -> int:
    """Run the command line `arguments` and return its exit code."""
    try:
        with carried_out(["tfdist", *arguments]):
            code = _run(arguments)
    finally:
        error = finish_output()
    if error is None or isinstance(error, BrokenPipeError) or code != ExitCode.SUCCESS:
        return code  # a reader that has closed the pipe, as `head` does, has read enough
    return _fail_to_print(error, arguments)


def _run(arguments: list[str]) -> int:
    try:
        return int(app(arguments or ["--help"], prog_name="tfdist", standalone_mode=False) or 0)
    except TfdistError as error:
        return _fail(str(error), error.exit_code, arguments)
    except UnsafeFolderError as error:
        return _fail(str(error), ExitCode.USAGE, arguments)
    except (OSError, RuntimeError) as error:
        if is_limit(error):
            return _fail(NO_PROCESSES, ExitCode.FAILED, arguments)
        if isinstance(error, RuntimeError):
            if not str(error).startswith("Symlink loop"):  # of Path.resolve, before Python 3.13
                raise
            return _fail(f"{error}: such a path leads nowhere; give another one", ExitCode.USAGE, arguments)
        return _fail_to_print(error, arguments)
    except typer.TyperException as error:
        return _fail(usage_sentence(error, arguments), ExitCode.USAGE, arguments)


def _fail_to_print(error: OSError, arguments: list[str]) -> int:
    fix = "check the path and its permissions" if error.filename else "free some space, or write to another place"
    what = error.filename or "the output"
    return _fail(f"{what}: {error.strerror or error}; {fix}", ExitCode.FAILED, arguments)


def _fail(sentence: str, code: int, arguments: list[str]) -> int:
    sentence = safe_text(sentence)
    typer.echo(f"tfdist: {sentence}", err=True)
    if _wants_json(arguments):
        status = "interrupted" if code > SIGNALS else _STATUSES.get(code, "failed")
        typer.echo(dumps({"format": 1, "status": status, "exit_code": int(code), "reason": sentence}))
    return int(code)


_STATUSES: dict[int, str] = {
    ExitCode.SUCCESS: "ok",
    ExitCode.USAGE: "refused",
    ExitCode.HOST_LOST: "refused",
    ExitCode.START_TIMEOUT: "refused",
}
"""Nothing was started, as in a record's status."""


def _wants_json(arguments: list[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    variable = os.environ.get(variable_of("json"), "")
    return "--json" in options or variable.lower() in ("1", "true", "yes", "on", "t", "y")
