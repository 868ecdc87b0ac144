"""Manual pages for man(1): `tfdist.1`, and one for each command."""

import re
from collections.abc import Iterable
from pathlib import Path

import tfdist
from lab.reference.commands import PROGRAM, Command, Parameter, commands
from lab.reference.pages import attribute_docs
from tfdist.cli.command import EPILOG, SENTENCES
from tfdist.launch.errors import SIGNALS, ExitCode

HOME = "https://github.com/tfdist/tfdist"
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def man_pages() -> dict[str, str]:
    """Each page by the name of its file."""
    root, *others = commands()
    return {f"{PROGRAM}.1": _main_page(root), **{f"{_name(each)}.1": _page(each) for each in others}}


def roff(text: str) -> str:
    """A plain text as roff prints it: a hyphen stays one, and no line starts a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


def release_date() -> str:
    """Day of the newest release in CHANGELOG.md, as 2026-01-31; empty before the first."""
    found = re.search(r"^## .*(\d{4}-\d\d-\d\d)", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def _name(command: Command) -> str:
    return "-".join(filter(None, (PROGRAM, command.name)))


def _head(command: Command, sentence: str) -> Iterable[str]:
    name = _name(command)
    yield f'.TH {roff(name.upper())} 1 "{release_date()}" "{PROGRAM} {tfdist.__version__}" "{PROGRAM}"'
    yield from (".SH NAME", f"{roff(name)} \\- {roff(sentence.rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".nf", roff(command.usage), ".fi")


def _paragraphs(texts: Iterable[str]) -> Iterable[str]:
    for number, text in enumerate(texts):
        yield from ((".PP",) if number else ())
        yield roff(text)


def _options(parameters: Iterable[Parameter]) -> Iterable[str]:
    for parameter in parameters:
        variable = f" [{parameter.variable}]" if parameter.variable else ""
        yield from (".TP", f".B {roff(parameter.words)}", roff(f"{parameter.text}{variable}"))


def _panels(command: Command) -> Iterable[str]:
    for panel, parameters in command.panels().items():
        yield f".SH {roff((panel or 'Arguments').upper())}"
        yield from _options(parameters)


def _page(command: Command) -> str:
    lines = [
        *_head(command, SENTENCES[command.name]),
        ".SH DESCRIPTION",
        *_paragraphs(command.paragraphs),
        *_panels(command),
        ".SH ENVIRONMENT",
        *_paragraphs([f"{EPILOG} The names are in brackets above."]),
        ".SH EXAMPLES",
        ".nf",
        *map(roff, command.examples),
        ".fi",
        ".SH SEE ALSO",
        f".BR {roff(PROGRAM)} (1)",
    ]
    return "\n".join((*lines, ""))


def _main_page(command: Command) -> str:
    docs = attribute_docs(ExitCode)
    lines = [
        *_head(command, command.paragraphs[0]),
        ".SH DESCRIPTION",
        *_paragraphs(command.paragraphs),
        *_panels(command),
        ".SH COMMANDS",
        *(line for name, sentence in SENTENCES.items() for line in (".TP", f".BR {roff(f'{PROGRAM}-{name}')} (1)", roff(sentence))),
        ".SH EXIT STATUS",
        *_paragraphs([f"Any code that is not listed is that of the task that failed first, or {SIGNALS} and the number of a signal."]),
        *(line for each in ExitCode for line in (".TP", f".B {int(each)}", roff(docs[each.name].replace("`", "")))),
        ".SH SEE ALSO",
        f".UR {HOME}",
        f"{PROGRAM} on GitHub",
        ".UE",
    ]  # fmt: skip
    return "\n".join((*lines, ""))
