"""What `make docs` adds to MkDocs: the README as home page, the reference pages, and the index for language models.

docs/*.md are written for GitHub. In the site, a link to a file outside of docs/ becomes one to the repository, and the
diagram of the packages a table: the library that draws it would be loaded from another host.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from lab.reference.man_pages import HOME
from lab.reference.pages import code, pages, table
from tfdist.cli.command import SENTENCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SECTION = "Reference"
WORKER = Path(__file__).with_name("iframe-worker.js")
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
DIAGRAM = re.compile(r"^```mermaid\nflowchart TD\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NODE = re.compile(r' *\w+\["<b>(.*?)</b>: (.*)"\]')
log = logging.getLogger("mkdocs.hooks.tfdist")
"""Its warnings end a strict build."""


def on_config(config: Any) -> None:
    """Put the reference pages into the navigation: the commands in a part of their own, before the others."""
    (section,) = (part[SECTION] for part in config.nav if SECTION in part)
    first, *others = pages()
    commands = [path for path in others if Path(path).stem in SENTENCES]
    section[:0] = [{"Commands": [{"Overview": first}, *commands]}, *(path for path in others if path not in commands)]


def on_files(files: Any, config: Any) -> None:
    """Add the home page with its pictures, the reference pages, and the script that search needs without a server."""
    generated = {**pages(), "index.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    pictures = {match[2] for match in LINK.finditer(generated["index.md"]) if match[2].endswith((".png", ".svg"))}
    for path in pictures:
        if not (ROOT / path).is_relative_to(DOCS):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, WORKER.name, abs_src_path=str(WORKER)))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A page of GitHub as one of the site."""
    if page.file.src_uri in pages():
        return markdown
    source = ROOT / "README.md" if page.file.src_uri == "index.md" else DOCS / page.file.src_uri
    return for_site(markdown, source, {file.src_uri for file in files})


def for_site(text: str, source: Path, copied: set[str]) -> str:
    """The Markdown of a page, with links, tables and diagrams as the site needs them.

    Args:
        text: as in the repository.
        source: where it is there.
        copied: paths of files in the site.
    """

    def link(match: "re.Match[str]") -> str:
        target = (source.parent / match[2]).resolve()
        if target.is_relative_to(DOCS) and not target.is_dir():
            return match[1] + str(target.relative_to(DOCS)) + match[3]
        path = str(target.relative_to(ROOT)) if target.is_relative_to(ROOT) else match[2]
        if path in copied:
            return match[1] + path + match[3]
        if not target.exists():
            log.warning("%s links to %s, which does not exist", source.name, match[2])
        return f"{match[1]}{HOME}/{'tree' if target.is_dir() else 'blob'}/main/{path}{match[3]}"

    text = DIAGRAM.sub(lambda match: "".join(_packages(match[1], source)), LINK.sub(link, text))
    if "```mermaid" in text:
        log.warning("%s has a diagram of another kind than flowchart TD", source.name)
    # GitHub needs \| in the code of a table, and Python-Markdown would show the backslash
    return re.sub(r"^\|.*", lambda row: re.sub(r"`[^`]*`", lambda each: each[0].replace("\\|", "|"), row[0]), text, flags=re.MULTILINE)  # fmt: skip


def _packages(diagram: str, source: Path) -> Iterator[str]:
    lines = diagram.splitlines()
    nodes = [match for match in map(NODE.fullmatch, lines) if match]
    edges = [line for line in lines if NODE.fullmatch(line) is None]
    if not all(re.fullmatch(r" +\w+(?: (-->|---|&) \w+)+", line) for line in edges):
        log.warning("%s has a diagram whose lines are not all boxes or arrows", source.name)
    yield table(("package", "what it does"), ((code(node[1]), re.sub("</?b>", "`", node[2])) for node in nodes))
    yield "\n" + "\n".join(edges) + "\n"


def on_post_build(config: Any) -> None:
    """Write llms.txt: https://llmstxt.org."""
    (Path(config.site_dir) / "llms.txt").write_text("".join(_index(config)), encoding="utf-8")


def _index(config: Any) -> Iterator[str]:
    yield f"# {config.site_name}\n\n> {config.site_description}\n"
    for part in config.nav:
        ((title, entries),) = part.items()
        yield f"\n## {title}\n\n"
        for path in _paths(entries):
            source = ROOT / "README.md" if path == "index.md" else DOCS / path
            heading, sentence = summary(pages().get(path) or source.read_text(encoding="utf-8"))
            yield f"- [{heading}]({Path(path).with_suffix('.html')}): {sentence}\n"


def _paths(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _paths(entry)


def summary(text: str) -> tuple[str, str]:
    """Title of a page, and the first sentence that is neither code nor a table, without markup."""
    title, *blocks = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split("\n\n")
    prose = next(" ".join(block.split()) for block in blocks if re.match(r"[^\s|#!\[:-]", block.lstrip("\n")))
    words = re.sub(r"\[([^]]*)\]\([^)]*\)|[*`\\]", r"\1", prose)
    return title.removeprefix("# ").strip(), re.split(r"(?<=\.)\s", words)[0].rstrip(":")
