"""The section on storage, from records with known variables."""

from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.storage import storage_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record, Storage

KB = 1000


def arm(name: str, storage: dict[str, Storage], seconds: float = 0.1, **spec: object) -> list[Record]:
    def one(number: int) -> Record:
        made = record(name, [[seconds]], round=number, **spec)
        return replace(made, ranks=tuple(replace(rank, storage=storage) for rank in made.ranks))

    return [one(number) for number in (1, 2, 3)]


def ps(name: str, *servers: Storage, seconds: float = 0.1, **spec: object) -> list[Record]:
    held = {f"ps-{index}": each for index, each in enumerate(servers)}
    values = {"strategy": "parameter-server", "workers": 2, "ps": len(servers), "tasks": ["chief-0"], **spec}
    return arm(name, held, seconds, **values)


def section_of(*arms: list[Record]) -> Section | None:
    folders = (folder([record for arm in arms for record in arm]),)
    return storage_section(ReportData(folders, summarize(folders)))


ONE = Storage(4, 400 * KB, 2, 100 * KB, 2, 100 * KB)
LARGE, SMALL = Storage(2, 300 * KB, 1, 75 * KB, 1, 75 * KB), Storage(2, 100 * KB, 1, 25 * KB, 1, 25 * KB)


@pytest.fixture
def section() -> Section:
    mirrored = arm("mirrored", {"CPU:0": Storage(3, 30 * KB)}, strategy="mirrored", devices=2)
    found = section_of(mirrored, ps("1-ps", ONE), ps("2-ps", LARGE, SMALL, seconds=0.05, placement="greedy"))
    assert found is not None
    return found


def test_servers_that_do_not_differ_make_no_section():
    assert section_of(ps("a", ONE), ps("b", LARGE, SMALL)) is None
    assert section_of(arm("mirrored", {"CPU:0": ONE}, strategy="mirrored", devices=2)) is None
    assert section_of(ps("a", ONE), ps("b", ONE, placement="greedy")) is not None


def test_the_fastest_and_the_busiest_server_are_named(section):
    fastest, balance = section.answer
    assert fastest.startswith("2-ps had the most images/s, 200 (")
    assert "measurably slower: mirrored 0.50 times that, 1-ps 0.50 times that" in fastest
    assert balance == "Of the bytes that a step moves, the busiest server's share is: 2-ps 75%."


def test_each_server_has_a_line(section):
    (table,) = section.tables
    assert [row["on"] for row in table.rows] == ["CPU:0", "ps-0", "ps-0", "ps-1"]
    assert [row["requests per step"] for row in table.rows] == ["-", "4", "2", "2"]
    assert [row["MB per step"] for row in table.rows] == ["-", "0.2", "0.15", "0.05"]
    assert list(table.data["read_bytes"]) == [0, 100 * KB, 75 * KB, 25 * KB]


def test_bars_add_up_over_servers(section):
    from matplotlib.figure import Figure

    (chart,) = section.charts
    axes = Figure().subplots()
    chart.paint(axes)
    assert [round(bar.get_x() + bar.get_width(), 3) for bar in axes.patches] == [0.2, 0.15, 0.2]
    assert "2-ps, ps-1: 0.05 MB" in chart.alt


def test_trainings_without_exchange_are_not_ranked():
    alone = arm("independent", {"CPU:0": ONE}, 0.01, strategy="independent", devices=2)
    found = section_of(alone, ps("1-ps", ONE), ps("2-ps", LARGE, SMALL, seconds=0.05, placement="greedy"))
    assert found is not None
    assert found.answer[0].startswith("2-ps had the most images/s")


def test_arms_in_different_groups_are_compared_through_the_one_in_both():
    def in_group(records: list[Record], number: int) -> list[Record]:
        return [replace(each, group=number) for each in records]

    one = arm("one-device", {"CPU:0": ONE}, 0.1)
    fast, slow = ps("1-ps", ONE, seconds=0.05), ps("2-ps", LARGE, SMALL, placement="greedy")
    found = section_of(in_group(one, 1), in_group(one, 2), in_group(fast, 1), in_group(slow, 2))
    assert found is not None
    assert "; measurably slower: 2-ps 0.50 times that" in found.answer[0]
