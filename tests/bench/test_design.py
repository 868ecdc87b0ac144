"""The model of the statistics agrees with dense pseudo-inverses on any small design."""

import numpy as np
import pytest
from hypothesis import given

from tests.bench.dense_model import residual_maker, weights
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


@given(several)
def test_residuals(bench: Rounds) -> None:
    for design in connected(bench):
        logs, fit, dense = logs_of(design, bench), design.rest, residual_maker(design)
        assert fit.df == round(float(dense.trace()))
        assert fit.freedom == pytest.approx(dense.diagonal(), abs=1e-8)
        assert fit.residuals(logs) == pytest.approx(dense @ logs, abs=1e-6)


def test_ten_thousand_turns_need_no_matrix_of_turns_by_turns() -> None:
    from tfdist.bench.design import Block

    draw = np.random.default_rng(0)
    blocks = [Block(1, number, 1 + number // 4) for number in range(7)]
    bench = {f"arm {index}": dict(zip(blocks, draw.lognormal(4, 0.05, 7), strict=True)) for index in range(1500)}
    (design,) = connected(bench)
    assert max(array.size for array in (design.rest.shares, design.rest.inverse)) == 1500 * 7
    logs = logs_of(design, bench)
    assert design.figures(logs) == pytest.approx([np.log(list(turns.values())).mean() for turns in bench.values()])
