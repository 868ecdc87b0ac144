"""Options for the memory of GPUs are refused where they would have no effect, or contradict each other."""

import pytest

from tfdist.jobs.presets import resolve, resolve_strategy
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.machine import Machine

CPU = Machine((0, 1), ())
GPU = Machine(tuple(range(8)), ("A100",), ("0",))


@pytest.mark.parametrize("decide", [lambda choices, machine: resolve(choices, machine, "smoke"), resolve_strategy])
def test_memory_options_need_gpus(decide):
    for choices, option in (
        ({"memory_limit_mb": 4096}, "--set memory_limit=4096M"),
        ({"memory_growth": True}, "--set memory_growth=true"),
        ({"memory_growth": False}, "--set memory_growth=false"),
    ):
        with pytest.raises(MissingHardwareError, match=f"^{option} needs GPUs, and none was found: omit it"):
            decide(choices, CPU)
        spec = decide(choices, GPU).spec
        assert {name: getattr(spec, name) for name in choices} == choices


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (
            {"memory_limit_mb": 4096, "memory_growth": True},
            "--set memory_limit=4096M and --set memory_growth=true: TensorFlow takes a limited",
        ),
        (
            {"memory_limit_mb": 4096, "logical_gpus": 2},
            "--set memory_limit=4096M: --set logical_gpus=2 gives each part",
        ),
        (
            {"memory_growth": False, "logical_gpus": 2},
            "--set memory_growth=false: --set logical_gpus=2 gives each part",
        ),
    ],
)
def test_contradictions_are_refused(choices, words):
    with pytest.raises(TfdistError, match=f"^{words}"):
        resolve({"strategy": "mirrored", **choices}, GPU, "smoke")
