"""A small version of bench_results/calibration/factors.md: with these seeds it always gives the same shares."""

from pathlib import Path

import pytest

from lab import calibrate_factors
from lab.calibrate_adaptive import Case
from lab.calibrate_factors import cases, main, one, row

pytestmark = pytest.mark.slow

BENCHES = 20


@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_the_fastest_is_measured_and_a_quarter_of_the_arms_is_not(case: Case) -> None:
    found = [one(case, 10_000 + seed) for seed in range(BENCHES)]
    assert sum(of.unmeasured for _, of in found) <= 0.01 * BENCHES + 3 * (0.01 * 0.99 * BENCHES) ** 0.5
    limit, time = (0.85, 0.26) if len(case.suite.arms) < 60 else (0.76, 0.23)
    assert sum(of.measured for _, of in found) / BENCHES <= limit * len(case.suite.arms)
    assert sum(shares.time for shares, _ in found) / BENCHES <= time
    assert sum(shares.best_dropped for shares, _ in found) <= 1


def test_a_row_has_shares_and_numbers() -> None:
    name, case = next(iter(cases().items()))
    found = row(2, name, case)
    assert (found["case"], str(found["measured"]).endswith(" of 60")) == ("as assumed", True)
    assert 10 < float(found["time"]) < 30
    assert 2 <= float(found["starts"]) <= 4


def test_the_page_has_a_row_for_each_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calibration").mkdir()
    monkeypatch.setattr(calibrate_factors, "ROOT", tmp_path)
    main(1)
    text = (tmp_path / "calibration" / "factors.md").read_text(encoding="utf-8")
    assert [f"\n| {name} |" in text for name in cases()] == [True] * len(cases())
    assert f"of {len(cases())} rows miss a target" in text
