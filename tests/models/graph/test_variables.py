"""Values between whole variables and their shards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.graph.placement import sizes_of_shards
from tfdist.models.training.moving_averages import cut

variables = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4)


@given(variables)
def test_shards_joined_again_are_the_variables(sizes):
    whole = [np.arange(rows * 3).reshape(rows, 3) for rows, _ in sizes]
    parts = [(rows, 3) for total, shards in sizes for rows in sizes_of_shards(total, min(shards, total))]
    shards = cut(whole, [np.zeros(part) for part in parts])
    assert [shard.shape for shard in shards] == parts
    joined = cut(shards, whole)
    assert all((one == other).all() for one, other in zip(joined, whole, strict=True))


@given(st.integers(1, 99), st.integers(1, 9))
def test_shards_differ_by_one_row_at_most(rows, shards):
    sizes = sizes_of_shards(rows, shards)
    assert (len(sizes), sum(sizes)) == (shards, rows)
    assert max(sizes) - min(sizes) <= 1
