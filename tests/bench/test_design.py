"""The model of the statistics agrees with dense pseudo-inverses on any small design."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.dense_model import indicators, residual_maker, weights
from tests.bench.test_statistics import Rounds, benches
from tfdist.bench.design import Design, connected

pytestmark = pytest.mark.slow

several = benches.filter(lambda bench: len(bench) > 1)


def logs_of(design: Design, bench: Rounds) -> np.ndarray:
    return np.log([bench[turn.arm][turn.block] for turn in design.turns])


@given(benches)
def test_figures_and_what_each_turn_counts_in_them(bench: Rounds) -> None:
    for design in connected(bench):
        logs, dense = logs_of(design, bench), weights(design)
        assert design.figures(logs) == pytest.approx(dense @ logs, abs=1e-9)
        for arm in range(len(design.arms)):
            assert design.weights(arm) == pytest.approx(dense[arm], abs=1e-9)


@given(several, st.booleans(), st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_residuals_with_unequal_spreads(bench: Rounds, within_starts: bool, sizes: list[float]) -> None:
    for design in connected(bench):
        spreads = np.array(sizes[: len(design.arms)])
        logs, fit = logs_of(design, bench), design.fit(spreads, within_starts)
        dense = residual_maker(design, spreads, within_starts)
        assert fit.df == round(float(dense.trace()))
        assert fit.freedom == pytest.approx(dense.diagonal(), abs=1e-8)
        assert fit.residuals(logs) == pytest.approx(dense @ (logs / spreads[design.arm_of]), abs=1e-6)


@given(several, st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_what_the_model_leaves_of_starts(bench: Rounds, sizes: list[float]) -> None:
    for design in connected(bench):
        spreads = np.array(sizes[: len(design.arms)])
        starts = indicators([(turn.arm, turn.block.group, turn.block.incarnation) for turn in design.turns])
        left = residual_maker(design, spreads, within_starts=False) @ (starts / spreads[design.arm_of][:, None])
        fit = design.fit(spreads, within_starts=False)
        assert fit.squares_left_of(design.start_of) == pytest.approx((left**2).sum(), rel=1e-6, abs=1e-6)


def test_ten_thousand_turns_need_no_matrix_of_turns_by_turns() -> None:
    from tfdist.bench.design import Block

    draw = np.random.default_rng(0)
    blocks = [Block(1, number, 1 + number // 4) for number in range(7)]
    bench = {f"arm {index}": dict(zip(blocks, draw.lognormal(4, 0.05, 7), strict=True)) for index in range(1500)}
    (design,) = connected(bench)
    assert max(array.size for array in (design.rest.shares, design.rest.inverse)) == 1500 * 7
    logs = logs_of(design, bench)
    assert design.figures(logs) == pytest.approx([np.log(list(turns.values())).mean() for turns in bench.values()])
