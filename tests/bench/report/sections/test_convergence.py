"""The section on learning, from records with known curves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.convergence import accuracy_text, convergence_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record

PS = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"]}
MULTI = {"strategy": "multiworker", "workers": 2}


def training(arm: str, per_turn: Sequence[int], **spec: object) -> list[Record]:
    """A start for each number of examples in a turn: 0.9 accuracy after one turn, 1.0 after two."""
    task = "chief-0" if spec.get("ps") else "worker-0"
    records = []
    for seed, examples in enumerate(per_turn):
        for turn, accuracy in enumerate((0.9, 1.0), start=1):
            held_out = {"examples": turn * examples, "loss": 1 - accuracy, "accuracy": accuracy}
            observed = {"held_out": held_out, **({"updates": [[30, 10], [50, 10]]} if spec.get("ps") else {})}
            times = [[1.0]] * (1 if spec.get("ps") else int(spec.get("workers", 1)))
            one = record(arm, times, round=2 * seed + turn, order=2 * seed + turn, seed=seed, **spec)
            records.append(replace(one, incarnation=seed + 1, observed={task: observed}))
    return records


def section_of(*arms: Sequence[Record]) -> Section:
    folders = [folder([record for arm in arms for record in arm])]
    section = convergence_section(ReportData(tuple(folders), summarize(folders)))
    assert section is not None
    return section


@pytest.fixture
def section():
    return section_of(
        training("one", [100, 110, 121]),
        training("multi", [300, 330, 363], **MULTI),
        training("ps", [200, 220, 242], **PS),
    )


def test_without_evaluations_there_is_no_section():
    folders = (folder([record()]),)
    assert convergence_section(ReportData(folders, summarize(folders))) is None


def test_the_table_has_examples_seconds_and_staleness(section):
    (table,) = section.tables
    one, multi, ps = (row for _, row in table.data.iterrows())
    assert (one.seeds, one.seeds_reached, one.batch_of_update) == (3, 3, 10)
    assert one.examples == pytest.approx(1.5 * 110), "in the middle of the second turn"
    assert one.examples_low < one.examples < one.examples_high
    assert one.seconds == pytest.approx(1.5 * 110 / 10)
    assert (multi.batch_of_update, ps.batch_of_update) == (20, 10)
    assert multi.seconds == pytest.approx(1.5 * 330 / 20)
    assert (ps.staleness_mean, ps.staleness_p95, ps.staleness_max) == (0.2, 1, 1)
    assert ps.worker_shares == "0.4000/0.6000"
    shown = {row["arm"]: row for row in table.rows}
    assert shown["ps"]["share of each worker"] == "40%, 60%"
    assert shown["one"]["staleness: mean, p95, max"] == "-"


def test_the_first_is_named_and_the_claim_is_judged(section):
    first, claim = section.answer
    assert first.startswith("one was the first to classify 95% of the held-out examples correctly, after 16.5 s")
    assert "on cores that its processes share" in first
    expected = '"Synchronous training needs fewer examples to 95% than asynchronous training": does not hold. '
    assert claim == f"{expected}multi needed 1.50 times (1.50 to 1.50) the examples of ps."


def test_arms_that_may_be_as_early_are_named_and_several_models_are_not_ranked():
    """The ratio of seconds is 1.5, 1 and 2: its interval contains 1. Two models at 10/s each would be the first."""
    found = section_of(
        training("one", [100, 110, 121]),
        training("other", [150, 110, 242]),
        training("independent", [50, 55, 60], strategy="independent", workers=2),
    )
    assert found.answer[0].startswith("one was the first to classify 95% ")
    assert found.answer[0].endswith(" No measurable difference from other.")


def test_an_accuracy_is_not_rounded():
    assert [accuracy_text(accuracy) for accuracy in (0.95, 0.995, 0.975, 1.0)] == ["95%", "99.5%", "97.5%", "100%"]


def test_an_arm_that_did_not_learn_with_each_seed_has_no_mean(section):
    slow = training("one", [100, 110, 121])
    poor = section_of([*slow[:-1], replace(slow[-1], observed=slow[-2].observed)])
    (answer,) = poor.answer
    assert answer.startswith("These arms did not reach 95% with every seed: one; measure with more --rounds")
    assert poor.tables[0].rows[0]["seeds that reached 95%"] == "2 of 3"
    assert poor.tables[0].data.loc[0, "examples"] is None


def test_charts_show_each_curve(section):
    from matplotlib.figure import Figure

    names = [chart.name for chart in section.charts]
    assert names == ["accuracy_over_examples", "accuracy_over_seconds", "loss_over_examples", "loss_over_seconds"]
    for chart in section.charts:
        axes = Figure().subplots()
        chart.paint(axes)
        assert len(axes.lines) == 9
        assert len(chart.data) == 18
        assert "multi" in chart.alt
    (line, *_) = axes.lines
    assert list(line.get_xdata()) == [10.0, 20.0], "seconds of 100 examples at 10/s each"


def test_large_numbers_of_examples_are_written_in_full():
    (table,) = section_of(training("one", [20_000, 22_000, 24_200])).tables
    assert table.rows[0]["examples (95 % interval)"].startswith("33,000 (")
