import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.models.custom.part import JobPart, job_part


def tf_config(role, index, **counts):
    cluster = {name: [f"h:{port}" for port in range(count)] for name, count in counts.items()}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({}, JobPart("worker-0")),
        ({"TFDIST_TASK": "worker-1"}, JobPart("worker-1")),
        (tf_config("worker", 1, worker=3), JobPart("worker-1", 1, 3)),
        (tf_config("chief", 0, chief=1, worker=2), JobPart("chief-0", 0, 3)),
        (tf_config("worker", 1, chief=1, worker=2), JobPart("worker-1", 2, 3)),
        (tf_config("chief", 0, chief=1, worker=2, ps=1), JobPart("chief-0", workers=2)),
        (tf_config("worker", 1, worker=2, ps=1), JobPart("worker-1")),
    ],
)
def test_the_environment_says_which_steps_a_task_counts(environ, part):
    assert job_part(environ) == part


@given(st.integers(1, 9), st.integers(1, 10_000))
def test_the_shares_of_all_ranks_are_the_examples(ranks, examples):
    assert sum(JobPart(rank=rank, ranks=ranks).share(examples) for rank in range(ranks)) == examples


def test_every_rank_needs_an_example():
    with pytest.raises(TfdistError, match="examples=1: must be at least 2, one for each worker"):
        JobPart(ranks=2).check(1)
    with pytest.raises(TfdistError, match="examples=0: must be positive"):
        JobPart().check(0)
