import json
from importlib.metadata import version

import pytest

from tfdist.cli.command import run
from tfdist.cli.strategies import keys_of
from tfdist.strategies.catalog import CATALOG


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


@pytest.mark.parametrize("name", CATALOG)
def test_a_key_is_on_a_line_with_its_type_and_not_broken(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["strategies", name]) == 0
    lines = capsys.readouterr().out.partition("--set KEY=VALUE:\n")[2].splitlines()
    heads = [line.partition(": ") for line in lines if not line.startswith(" ")]
    assert [key for key, _, _ in heads] == [key.name for key in keys_of(CATALOG[name])]
    assert all(kind for _, _, kind in heads)
