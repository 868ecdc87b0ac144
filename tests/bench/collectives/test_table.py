import pytest

from tfdist.bench.collectives.figures import figures_of
from tfdist.bench.collectives.table import columns_for, lines_of_table, significant, to_json

from .lines import line, sweep

ROUNDS = [line(size=size, seconds=1e-9 * size + 1e-4, round=number) for number in (1, 2, 3) for size in (1024, 1 << 28)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0001234, "0.000123"), (0.9996, "1.00"), (1.0, "1.00"), (12.34, "12.3"), (123.4, "123"), (123456.7, "123457")],
)
def test_figures_have_three_digits_and_no_power_of_ten(value, text):
    assert significant(value) == text


def test_columns_and_units_are_those_of_the_nccl_tests():
    figures = figures_of(sweep(*ROUNDS))
    names, units, first, _ = (text.split() for text in lines_of_table(columns_for(figures), figures))
    assert names == ["size", "count", "type", "redop", "time", "algbw", "busbw", "95", "%", "interval", "#wrong"]
    assert units == ["B", "elements", "us", "GB/s", "GB/s", "GB/s"]
    assert first[:5] == ["1024", "256", "float32", "sum", "101.0"]
    assert first[-1] == "0"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_fits_on_a_narrow_terminal(width):
    figures = figures_of(sweep(*ROUNDS))
    columns = columns_for(figures, width)
    assert max(map(len, lines_of_table(columns, figures))) <= width
    assert {"size", "time", "busbw", "#wrong"} <= {column.title.partition(" (")[0] for column in columns}


def test_lists_of_tensors_have_their_number_and_packs():
    figures = figures_of(sweep(line(tensors=158, pack=4 << 20), line()))
    text = lines_of_table(columns_for(figures), figures)
    assert "tensors  packs" in text[0]
    assert " 158     4M " in text[-1]


def test_json_has_exact_values_and_what_was_not_measured():
    found = to_json(sweep(*ROUNDS, not_measured={"nccl": "needs GPUs"}))
    assert found["rows"][1]["size_bytes"] == 1 << 28
    assert found["rows"][1]["busbw_gb_per_s"] == pytest.approx((1 << 28) / (0.268435456 + 1e-4) / 1e9)
    assert found["not_measured"] == {"nccl": "needs GPUs"}
