"""The words of the options that were given."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tfdist.cli.command import given_words
from tfdist.cli.options import option

app = typer.Typer()


@app.command()
def command(
    ctx: typer.Context,
    size: Annotated[int | None, option("--size", "")] = None,
    share: Annotated[float, option("--share", "")] = 0.5,
    fast: Annotated[bool | None, option("--fast/--no-fast", "")] = None,
    plain: Annotated[bool, option("--plain", "")] = False,
    other: Annotated[str, option("--other", "")] = "",
) -> None:
    print(*given_words(ctx, ("other",), ""))


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ([], {}, ""),
        (["--size", "3", "--other", "x"], {}, "--size 3"),
        (["--share", "0.5", "--fast"], {}, "--share 0.5 --fast"),
        (["--no-fast"], {"TFDIST_SIZE": "4"}, "--size 4 --no-fast"),
        ([], {"TFDIST_PLAIN": "0"}, ""),
        (["--plain"], {}, "--plain"),
    ],
)
def test_options_that_were_given_become_words(arguments, variables, words):
    result = CliRunner().invoke(app, arguments, env=variables)
    assert result.output == f"{words}\n"
