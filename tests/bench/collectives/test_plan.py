from pathlib import Path

import pytest

from tfdist.bench.collectives.plan import CollectiveOptions, plan_collectives
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine
from tfdist.models.collectives.spec import CollectiveOp
from tfdist.strategies.options import Communication, CrossDevice, GradientDtype

CPU = {LOCAL: Machine(cores=(0, 1, 2, 3), gpus=())}
GPUS = {LOCAL: Machine(cores=(0, 1, 2, 3), gpus=("H200", "H200"))}
TWO = {Host("h1"): Machine(cores=(0, 1), gpus=()), Host("h2"): Machine(cores=(0, 1), gpus=())}


@pytest.fixture
def plan(tmp_path):
    def planned(machines=CPU, **options):
        return plan_collectives(CollectiveOptions(**{"out": tmp_path / "it's; new", **options}), machines)

    return planned


def test_without_gpus_both_kinds_of_ranks_are_measured_without_nccl(plan):
    planned = plan()
    assert list(planned.arms.specs) == [
        "multiworker/auto", "multiworker/ring", "mirrored/auto", "mirrored/hierarchical-copy", "mirrored/reduction-to-one",
    ]  # fmt: skip
    assert {spec.replicas for spec in planned.arms.specs.values()} == {2}
    assert {len(spec.sizes) for spec in planned.arms.specs.values()} == {9}
    assert {spec.cores_per_device for spec in planned.arms.specs.values()} == {1}
    assert len(planned.runs) == 60
    assert planned.same_arms == (("multiworker/ring", "multiworker/auto"),)


def test_each_start_has_its_own_order_of_the_arms_which_the_seed_decides(plan):
    planned = plan()
    assert len(planned.starts) == 4
    assert {tuple(sorted(order)) for order in planned.starts} == {tuple(sorted(planned.arms.specs))}
    assert len(set(planned.starts)) > 1
    assert plan().starts == planned.starts
    assert plan(seed=1).starts != planned.starts
    assert plan(rounds=20).starts == planned.starts  # a longer sweep starts as a shorter one


@pytest.mark.parametrize(
    ("options", "starts"), [({"rounds": 3}, 3), ({"rounds": 3, "incarnations": 1}, 1), ({"incarnations": 12}, 12)]
)
def test_there_are_at_most_as_many_starts_as_rounds(plan, options, starts):
    assert len(plan(**options).starts) == starts


def test_with_gpus_nccl_is_measured_too(plan):
    arms = plan(GPUS).arms.specs
    assert {"multiworker/nccl", "mirrored/nccl"} < arms.keys()
    assert arms["multiworker/nccl"].gpus
    assert plan(GPUS).same_arms == (("multiworker/ring (again)", "multiworker/ring"),)


def test_several_hosts_measure_between_processes_on_all_of_them(plan):
    planned = plan(TWO)
    assert list(planned.arms.specs) == ["multiworker/auto", "multiworker/ring"]
    assert len(planned.arms.machines["multiworker/ring"]) == 2
    assert planned.hosts == ("h1", "h2")


@pytest.mark.parametrize(
    ("options", "arms"),
    [
        ({"communication": (Communication.RING,)}, ["multiworker/ring", "multiworker/ring (again)"]),
        ({"workers": (2, 4), "communication": (Communication.RING,)},
         ["multiworker/ring, 2 workers", "multiworker/ring, 4 workers", "multiworker/ring, 2 workers (again)"]),
        ({"workers": (3,)}, ["multiworker/auto", "multiworker/ring"]),
        ({"cross_device": (CrossDevice.AUTO,)}, ["mirrored/auto", "mirrored/auto (again)"]),
        ({"devices": (4,), "workers": (2,), "cross_device": (CrossDevice.AUTO,), "communication": (Communication.RING,)},
         ["multiworker/ring", "mirrored/auto", "multiworker/ring (again)"]),
    ],
)  # fmt: skip
def test_options_of_one_kind_of_ranks_select_it(plan, options, arms):
    assert list(plan(**options).arms.specs) == arms


def test_without_two_arms_that_do_the_same_the_first_is_measured_twice(plan):
    planned = plan(TWO, communication=(Communication.RING,))
    assert planned.same_arms == (("multiworker/ring (again)", "multiworker/ring"),)
    assert planned.arms.specs["multiworker/ring (again)"] == planned.arms.specs["multiworker/ring"]
    assert planned.arms.machines["multiworker/ring (again)"] == planned.arms.machines["multiworker/ring"]


def test_every_number_of_workers_has_a_pair_that_does_the_same(plan):
    assert plan(workers=(2, 4)).same_arms == tuple(
        (f"multiworker/ring, {number} workers", f"multiworker/auto, {number} workers") for number in (2, 4)
    )


def test_the_first_hosts_are_used_for_fewer_workers(plan):
    assert len(plan(TWO, workers=(2,)).arms.machines["multiworker/ring"]) == 2
    assert len(plan({**TWO, Host("h3"): Machine((0,), ())}, workers=(2,)).arms.machines["multiworker/ring"]) == 2


def test_gradients_alone_are_measured_with_one_pack_added(plan):
    planned = plan(
        model_gradients=True, pack_sizes=(1 << 20,), model={"alpha": 0.35}, gradient_dtype=GradientDtype.FLOAT16
    )
    spec = planned.arms.specs["multiworker/ring"]
    assert (spec.sizes, spec.pack_sizes, spec.alpha, spec.classes) == ((), (0, 1 << 20), 0.35, 1000)
    assert planned.arms.specs["mirrored/reduction-to-one"].pack_sizes == (0,)


def test_gradients_are_measured_on_several_hosts_too(plan):
    assert plan(TWO, model_gradients=True).arms.specs["multiworker/ring"].model_gradients


def test_arms_that_cannot_run_are_listed_with_the_reason(plan):
    planned = plan(devices=(3,))
    assert "drops the gradients of one of 3 devices" in planned.arms.refused["mirrored/hierarchical-copy"]
    assert list(planned.arms.specs) == ["mirrored/auto", "mirrored/reduction-to-one", "mirrored/auto (again)"]


@pytest.mark.parametrize(
    ("op", "arms"),
    [
        (
            CollectiveOp.ALL_GATHER,
            ["multiworker/auto", "multiworker/ring", "mirrored/auto", "mirrored/reduction-to-one"],
        ),
        (CollectiveOp.BROADCAST, ["multiworker/auto", "multiworker/ring"]),
        (CollectiveOp.REDUCE, ["mirrored/reduction-to-one", "mirrored/reduction-to-one (again)"]),
    ],
)
def test_an_operation_is_measured_where_tensorflow_has_it(plan, op, arms):
    planned = plan(op=op)
    assert list(planned.arms.specs) == arms
    assert all(f"--op {op} under {arm}: " in reason for arm, reason in planned.arms.refused.items())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "--rounds 0: must be at least 1"),
        ({"incarnations": 0}, "--incarnations 0: must be at least 1"),
        ({"communication": (Communication.NCCL,)}, "--communication nccl needs GPUs, and none was found"),
        ({"op": CollectiveOp.REDUCE, "workers": (2,)}, "an all-reduce and use one of its results; use --cross-device reduction-to-one"),
        ({"op": CollectiveOp.BROADCAST, "devices": (2,)}, "CPU devices of one process share the buffer"),
        ({"op": CollectiveOp.BROADCAST, "model_gradients": True}, "--op broadcast --model-gradients: gradients are all-reduced"),
        ({"pack_sizes": (1,)}, "--bytes-per-pack: has no effect on single tensors; add --model-gradients"),
        ({"model_gradients": True, "pack_sizes": (1,), "cross_device": (CrossDevice.REDUCTION_TO_ONE,)}, "no effect with --cross-device reduction-to-one"),
        ({"model": {"alpha": 0.5}}, "--set alpha=0.5: has no effect without --model-gradients"),
        ({"model_gradients": True, "model": {"alpha": 0.6}}, "--set alpha=0.6: choose from 0.35"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_with_the_value_and_the_way_out(plan, options, sentence):
    with pytest.raises(TfdistError) as error:
        plan(**options)
    assert sentence in str(error.value)


def test_bfloat16_over_nccl_is_refused(plan):
    planned = plan(GPUS, gradient_dtype=GradientDtype.BFLOAT16)
    assert "no bfloat16" in planned.arms.refused["multiworker/nccl"]
    assert "multiworker/ring" in planned.arms.specs


def test_a_single_rank_is_refused(plan):
    with pytest.raises(TfdistError, match="a single rank exchanges nothing; use 2 or more"):
        plan({LOCAL: Machine(cores=(0,), gpus=("H200",))})


def test_results_of_before_are_not_replaced(plan, tmp_path):
    (tmp_path / "it's; new").mkdir()
    (tmp_path / "it's; new" / "collectives.jsonl").touch()
    with pytest.raises(TfdistError, match="is not empty: choose a new folder"):
        plan()


def test_nothing_is_written(plan, tmp_path):
    plan()
    assert list(Path(tmp_path).iterdir()) == []
