import json
from importlib.metadata import version

import pytest

from tests.cli.screens import broken
from tfdist.cli.command import run
from tfdist.cli.strategies import keys_of
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import option_name


def test_every_strategy_is_listed_with_its_options_and_keras_cells(capsys):
    assert run(["strategies", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["strategies"]
    assert [row["strategy"] for row in rows] == [str(name) for name in CATALOG]
    (multiworker,) = [row for row in rows if row["strategy"] == "multiworker"]
    assert "--communication" in multiworker["options"]
    assert multiworker["keras"]["3 fit"].startswith("no: ")
    assert multiworker["keras"]["2 fit"] == "yes"


def test_the_text_has_a_table_of_keras_support_and_this_machine(capsys):
    assert run(["strategies"]) == 0
    out = capsys.readouterr().out
    assert "central-storage" in out
    assert "Keras 3 fit" in out
    assert f"Installed here: tensorflow {version('tensorflow')}, tf_keras {version('tf_keras')}, keras 3." in " ".join(
        out.split()
    )
    assert "cores" in out


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_terminal_gets_whole_names_of_strategies_options_and_keys(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["strategies"]) == 0
    strategies, _, keras = capsys.readouterr().out.partition("fit\n")
    options = [option_name(name).removeprefix("--set ") for row in CATALOG.values() for name in row.options]
    assert broken([*CATALOG, *(row.tf_name.split()[-1] for row in CATALOG.values()), *options], strategies, width) == []
    assert [line.split()[0] for line in keras.partition("\n\n")[0].splitlines()] == [*CATALOG]


@pytest.mark.parametrize("name", CATALOG)
def test_a_key_is_on_a_line_with_its_type_and_not_broken(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["strategies", name]) == 0
    lines = capsys.readouterr().out.partition("--set KEY=VALUE:\n")[2].splitlines()
    heads = [line.partition(": ") for line in lines if not line.startswith(" ")]
    assert [key for key, _, _ in heads] == [key.name for key in keys_of(CATALOG[name])]
    assert all(kind for _, _, kind in heads)
