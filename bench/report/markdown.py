"""A page as Markdown. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping

from tfdist.bench.report.format import figure_columns
from tfdist.bench.report.section import Page, Section
from tfdist.bench.table import Table

_MARKED = re.compile(r"(`[^`]+`)|\*\*([^*`]+)\*\*")
_SPECIAL = re.compile(r"[\\`*\[\]~$]|(?<!\w)_|_(?!\w)|<|&(?=#?\w+;)")
"""What Markdown reads anywhere in a line; $: GitHub's formulas."""
_BLOCK = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[#>+=-]))")
"""Where it reads a heading, quote or list at the beginning of a line."""
_FIRST = ("results", "efficiency", "windows", "costs")
"""Keys of the sections that Markdown begins with: a table of all arms is what a reader of text looks for."""


def markdown(page: Page) -> str:
    """The whole page; pictures are files in the same folder."""
    sections = sorted(page.sections, key=lambda section: _FIRST.index(section.key) if section.key in _FIRST else 9)
    parts = (
        f"# {_inline(page.title)}\n\n" + "\n\n".join(map(_inline, page.headline)),
        *map(_of_section, sections),
        _listing("Warnings", (f"**{w.code}**: {_text(w.text)} {_text(w.advice)}" for w in page.warnings)),
        *(_listing(title, map(_inline, lines)) for title, lines in page.listings.items()),
        _listing("Environment", map(_text, environment_lines(page.environment))),
        f"## Method\n\n{page.method}" if page.method else "",
        _listing("Command", map(_code, page.commands)),
    )
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def environment_lines(facts: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """`fact: value`, with all values where they differ."""
    for fact, values in facts.items():
        differs = " (differs between processes)" if len(values) > 1 else ""
        yield f"{fact}: {' | '.join(values)}{differs}"


def to_table(table: Table) -> str:
    """A table of text, with figures aligned to the right."""
    rule = ["--:" if right else "---" for right in figure_columns(table)]
    return "\n".join(map(_line, ([column.title for column in table.shown_columns], rule, *table.lines))) + "\n"


def _of_section(section: Section) -> str:
    titled = len(section.tables) > 1
    tables = [(f"{_text(table.title)}:\n\n" if titled else "") + to_table(table) for table in section.tables]
    notes = "\n".join(f"- {_inline(note)}" for note in section.notes)
    charts = [f"![{_text(chart.alt)}]({chart.name}.png)" for chart in section.charts]
    parts = (f"## {_text(section.title)}", "\n\n".join(map(_inline, section.answer)), *tables, notes, *charts)
    return "\n\n".join(part.strip() for part in parts if part)


def _listing(title: str, lines: Iterable[str]) -> str:
    items = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}\n", *items]) if items else ""


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escaped(cell).replace("|", "\\|") for cell in cells) + " |"


def _inline(text: str) -> str:
    """`code` and **bold** stay; everything else is shown as it is."""
    end, parts = 0, []
    for found in _MARKED.finditer(text):
        parts += [_escaped(text[end : found.start()]), found[1] or f"**{_escaped(found[2])}**"]
        end = found.end()
    return _one_line("".join([*parts, _escaped(text[end:])]))


def _text(text: str) -> str:
    return _one_line(_escaped(text))


def _one_line(text: str) -> str:
    return _BLOCK.sub(r"\1\\", " ".join(text.split()))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: {"<": "&lt;", "&": "&amp;"}.get(found[0], f"\\{found[0]}"), text)


def _code(text: str) -> str:
    """A code span, between more backticks than are in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"
