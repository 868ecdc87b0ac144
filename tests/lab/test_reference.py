"""The generated reference has every command, option, key, variable and exit code of the code; pages read as on GitHub."""

import ast
import html
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import markdown
import pytest
from markdown_it import MarkdownIt

from lab.reference.__main__ import FOLDER as MAN
from lab.reference.commands import commands
from lab.reference.man_pages import man_pages, roff
from lab.reference.mkdocs_hook import DIAGRAM, DOCS, ROOT, for_site, summary
from lab.reference.pages import API, OF_TASKS, OF_TFDIST, pages
from lab.reference.pages import markdown as as_markdown
from lab.schemas import schemas
from tests.test_imports import FILES
from tfdist.bench.suites.arm import check_choices
from tfdist.bench.suites.suite import parse_suite
from tfdist.cli.command import SENTENCES, run
from tfdist.cli.launch import load_config
from tfdist.jobs.options import OPTIONS
from tfdist.launch.agents.inbox import INTERRUPTIONS
from tfdist.launch.environment import COMPUTED
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.strategies.options import SETTINGS, variable_of

ONE_ARM = {"arms": [{"name": "one", "strategy": "one-device"}]}
SAMPLES = {"text": '"x"', "path": '"x"', "integer": "1", "number": "1.0", "true or false": "true", "list of texts": '["x"]', "time": '"1s"', "size": '"1K"'}  # fmt: skip
"""A value in TOML of each type that a page names."""


def cells(page: str, heading: str = "") -> list[list[str]]:
    """The rows of the tables of a page, or of one part of it, without their headings."""
    text = pages()[f"reference/{page}.md"]
    if heading:
        text = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [line.split(" | ") for line in lines]


def first_code(rows: list[list[str]]) -> list[str]:
    return [row[0].strip("`") for row in rows if row[0].startswith("`")]


@cache
def nodes() -> list[ast.AST]:
    """The source of all packages."""
    files = (*FILES, Path("package/measure.py"))
    return [node for file in files for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))]


def words(page: str) -> set[str]:
    """What a page has in code, word by word."""
    return {word.strip(",") for each in re.findall(r"`([^`]+)`", pages()[f"reference/{page}.md"]) for word in each.split()}  # fmt: skip


@pytest.mark.parametrize("command", SENTENCES)
def test_a_page_has_each_option_that_the_help_shows(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    assert run([command, "--help"]) == 0
    shown = re.findall(r"^│[* ]*((?:--?[a-z][a-z-]*[ ,/]*)+)", capsys.readouterr().out, re.MULTILINE)
    options = {word for row in shown for word in re.findall(r"--?[a-z][a-z-]*", row)}
    assert "--help" in options
    assert options <= words(command)
    assert f"[{command}]({command}.md)" in pages()["reference/commands.md"]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.title)
def test_a_page_has_the_help_of_each_parameter(command):
    page = command.name or "commands"
    rows = {row[0]: row[1:] for row in cells(page)}
    for each in command.parameters:
        assert rows[f"`{each.words}`"][0] == as_markdown(each.text)
        assert each.variable in rows[f"`{each.words}`"][1]
    text = pages()[f"reference/{page}.md"]
    assert f"    {command.usage}\n" in text
    assert all(f"    {line}\n" in text for line in command.examples)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_row_of_the_table_of_options_is_a_key_of_a_job_file(option):
    (row,) = [row for row in cells("job-file") if row[0] == f"`{option.name}`"]
    assert row[2] == as_markdown(option.text)
    assert (option.name in first_code(cells("job-file", "Keys of --set"))) == (option.name in SETTINGS)


def test_a_job_file_takes_the_keys_of_its_page_and_no_other(tmp_path, launch_params):
    kinds = {row[0].strip("`"): row[1] for row in cells("job-file") if row[0].startswith("`")}
    path = tmp_path / "job.toml"
    values = {key: SAMPLES.get(kind) or '"' + kind.split("`")[1] + '"' for key, kind in kinds.items()}
    path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    assert load_config(path, launch_params).keys() == {*kinds} - SETTINGS | {"set"}
    for other in {str(param.name) for param in launch_params} - kinds.keys():
        path.write_text(f"{other} = 1\n")
        with pytest.raises(TfdistError, match=f"{other}: not for a job file"):
            load_config(path, launch_params)


@pytest.fixture
def launch_params():
    import typer

    from tfdist.cli.command import app

    group = typer.main.get_command(app)
    context = group.make_context("tfdist", [], resilient_parsing=True)
    _, command, _ = group.resolve_command(context, ["launch"])
    return [param for param in command.params if param.name != "help"]


def known(error: pytest.ExceptionInfo[TfdistError]) -> set[str]:
    """The keys that the message about an unknown one lists."""
    return set(re.split(r", | and ", str(error.value).partition("from ")[2]))


def test_the_page_of_suites_has_the_keys_that_a_suite_knows():
    with pytest.raises(TfdistError) as caught:
        parse_suite({**ONE_ARM, "zzz": 1}, "x")
    tables = [key.strip("[]") for key in first_code(cells("suite")) if key.startswith("[")]
    keys = first_code(cells("suite"))
    of_suite = keys[: keys.index("[defaults]")]
    assert sorted({*of_suite, *tables, "command"}) == sorted(known(caught))


def test_the_page_of_suites_has_the_keys_that_an_arm_knows():
    with pytest.raises(TfdistError) as caught:
        check_choices({"zzz": 1}, "x")
    assert set(first_code(cells("suite", "Keys of an arm"))) == known(caught) | {"name", "hosts", "command"}


def test_each_exit_code_has_a_meaning_and_is_in_both_tables():
    rows = {row[0]: row[1] for row in cells("exit-codes")[2:]}
    assert rows.keys() == {str(int(each)) for each in ExitCode}
    assert all(rows.values())
    section = (DOCS / "how-it-works.md").read_text(encoding="utf-8").partition("## Exit codes\n")[2]
    for code in (*map(int, ExitCode), *(128 + number for number in INTERRUPTIONS)):
        assert re.search(rf"\b{code}\b", section)


@pytest.mark.slow
def test_no_command_ends_with_a_code_that_is_not_in_the_table():
    literal = []
    for node in nodes():
        function = getattr(node, "func", None)
        if getattr(function, "attr", getattr(function, "id", "")) in ("Exit", "exit", "SystemExit"):
            literal += [each.value for each in node.args if isinstance(each, ast.Constant)]
        if isinstance(node, ast.keyword) and node.arg == "exit_code" and isinstance(node.value, ast.Constant):
            literal.append(node.value.value)
    assert {value for value in literal if isinstance(value, int)} <= set(ExitCode)


@pytest.mark.slow
def test_the_page_of_variables_has_each_that_the_code_names():
    texts = [node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = {text for text in texts if re.fullmatch(r"TFDIST_[A-Z_]*[A-Z]", text)}
    options = {each.variable for command in commands() for each in command.parameters if each.variable}
    assert len(named) > 15
    assert len(options) > 100
    assert named | options | {*map(variable_of, SETTINGS)} | COMPUTED.keys() <= set(first_code(cells("variables")))
    assert COMPUTED.keys() <= OF_TASKS.keys()


def test_no_variable_of_an_option_means_something_else_to_a_task_or_to_tfdist():
    options = {each.variable for command in commands() for each in command.parameters if each.variable}
    assert options & (OF_TASKS.keys() | OF_TFDIST.keys()) == {"TFDIST_CHECKPOINT_DIR"}  # the same folder in both


@pytest.mark.parametrize("command", SENTENCES)
def test_the_help_names_each_variable_that_is_not_called_like_its_option(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    assert run([command, "--help"]) == 0
    shown = set(re.findall(r"env var: (\w+)", capsys.readouterr().out))
    (parameters,) = [each.parameters for each in commands() if each.name == command]
    assert shown == {each.variable for each in parameters if each.variable not in ("", variable_of(each.key))}


def test_the_page_of_python_has_what_programs_call():
    called = {
        f"tfdist.{name}.{each}" for name in ("bench", "measure") for each in import_module(f"tfdist.{name}").__all__
    }
    named = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *DOCS.glob("*.md")))
    called |= set(re.findall(r"\btfdist\.(?:bench|measure|strategies)\.\w+(?=\()", named))
    assert {"tfdist.strategies.current", "tfdist.measure.Callback"} <= called <= set(API)
    assert re.findall("^::: (.*)$", pages()["reference/python.md"], re.MULTILINE) == list(API)


def test_the_page_of_schemas_has_each_field():
    for schema in schemas().values():
        for each in schema.get("oneOf", [schema]):
            assert each["properties"].keys() <= words("schemas")


def test_the_manual_pages_are_those_of_the_code():
    """If not: python -m lab.reference."""
    assert {path.name: path.read_text(encoding="utf-8") for path in MAN.iterdir()} == man_pages()


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.title)
def test_a_manual_page_has_each_parameter(command):
    page = man_pages()[f"{command.title.replace(' ', '-')}.1"]
    for each in command.parameters:
        assert f".TP\n.B {roff(each.words)}\n{roff(each.text)}" in page
    assert all(f"\n{roff(line)}\n" in page for line in command.examples)


def test_roff_prints_any_text_as_it_is():
    assert roff(".SH x\n'a' -b \\c") == "\\&.SH x\n\\&'a' \\-b \\ec"


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [("mandoc", "-T", "lint", "-W", "warning"), ("groff", "-man", "-Tutf8", "-ww", "-z")],
    ids=lambda program: program[0],
)
@pytest.mark.parametrize("name", [path.name for path in sorted(MAN.iterdir())])
def test_a_manual_page_is_read_without_a_warning(program, name):
    if shutil.which(program[0]) is None:
        pytest.skip(f"needs {program[0]}: apt-get install it")
    done = subprocess.run([*program, MAN / name], capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr).splitlines() == []


def shown(page: str) -> tuple[Counter[str], str]:
    """The number of elements of each kind, and the text."""
    tags = Counter(re.findall(r"<(h\d|ol|ul|li|table|tr|pre|img|a|em|strong)\b", page))
    return tags, "".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_a_page_reads_in_the_site_as_on_github(path):
    text = DIAGRAM.sub("", path.read_text(encoding="utf-8"))
    on_github = MarkdownIt("commonmark").enable("table").render(text)
    in_site = markdown.markdown(for_site(text, path, set()), extensions=["tables", "toc", "fenced_code"])
    assert shown(in_site) == shown(on_github)


def test_links_lead_to_the_site_or_to_the_repository(caplog):
    home = "https://github.com/tfdist/tfdist"
    text = "[a](../examples/keras_fit.py) ![b](../bench_results) [c](gpus.md#install) [d](https://x.org/y) [e](#f) [g](schemas)"
    assert for_site(text, DOCS / "x.md", set()) == (
        f"[a]({home}/blob/main/examples/keras_fit.py) ![b]({home}/tree/main/bench_results) "
        f"[c](gpus.md#install) [d](https://x.org/y) [e](#f) [g]({home}/tree/main/docs/schemas)"
    )
    readme = "[a](docs/gpus.md#install) ![b](bench_results/x.png) [c](LICENSE#d)"
    assert for_site(readme, ROOT / "README.md", {"bench_results/x.png"}) == (
        f"[a](gpus.md#install) ![b](bench_results/x.png) [c]({home}/blob/main/LICENSE#d)"
    )
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[a](../examples/no_such_file.py)", "x.md links to ../examples/no_such_file.py, which does not exist"),
        ("```mermaid\nsequenceDiagram\n```\n", "x.md has a diagram of another kind than flowchart TD"),
        ("```mermaid\nflowchart TD\n  a -.-> b\n```\n", "x.md has a diagram whose lines are not all boxes or arrows"),
    ],
)
def test_what_the_site_cannot_show_ends_the_build(text, warning, caplog):
    for_site(text, DOCS / "x.md", set())
    assert caplog.messages == [warning]


def test_a_diagram_becomes_a_table_and_its_arrows():
    diagram = '```mermaid\nflowchart TD\n    a["<b>a/b</b>: does <b>this</b>"]\n    a --> b & c --- d\n```\n'
    assert for_site(diagram, DOCS / "x.md", set()) == (
        "| package | what it does |\n| --- | --- |\n| `a/b` | does `this` |\n\n    a --> b & c --- d\n"
    )


def test_the_summary_of_a_page_is_its_first_sentence():
    text = "# A `b`\n\n```python\nx\n```\n\n    code\n\n## C\n\nThe **first** [sentence](x.md)\nof it. Another.\n"
    assert summary(text) == ("A `b`", "The first sentence of it.")
