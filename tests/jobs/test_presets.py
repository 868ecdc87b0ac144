import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.jobs.presets import PRESETS, resolve, resolve_strategy
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import CrossDevice, StrategyName

CPU = Machine((0, 1), ())
ONE_GPU = Machine(tuple(range(8)), ("A100",), ("0",))
FOUR_GPUS = Machine(tuple(range(32)), ("A100",) * 4)


def test_without_a_preset_the_machine_decides_with_a_note():
    assert resolve({}, CPU).notes[0] == "preset cpu: no GPU found"
    assert resolve({"dataset": "digits"}, FOUR_GPUS).notes[0] == "preset reference: GPUs found"


def test_a_chosen_preset_and_strategy_have_no_note():
    assert resolve({"strategy": "mirrored"}, CPU, "smoke").notes == ()
    assert resolve_strategy({"strategy": "mirrored"}, CPU).notes == ()


def test_the_reference_preset_is_the_published_setup():
    spec = resolve({"dataset": "digits", "strategy": "one-device"}, FOUR_GPUS, "reference").spec
    assert (spec.image_size, spec.batch_size, spec.optimizer, spec.learning_rate) == (224, 64, "adam", 0.001)
    assert (spec.epochs, spec.shuffle) == (5, 1024)
    assert PRESETS["reference"]["dataset"] == "tfds:cats_vs_dogs"


def test_only_the_smoke_preset_trains_without_the_meta_optimizer():
    assert {name: resolve({"dataset": "digits"}, CPU, name).spec.meta_optimizer for name in PRESETS} == {
        "smoke": False, "cpu": True, "reference": True,
    }  # fmt: skip
    assert resolve({"meta_optimizer": True}, CPU, "smoke").spec.meta_optimizer


@pytest.mark.parametrize(
    ("choices", "machine", "strategy"),
    [
        ({}, CPU, StrategyName.ONE_DEVICE),
        ({"devices": 2}, CPU, StrategyName.MIRRORED),
        ({"workers": 2}, CPU, StrategyName.MULTI_WORKER),
        ({"ps": 1}, CPU, StrategyName.PARAMETER_SERVER),
        ({}, FOUR_GPUS, StrategyName.MIRRORED),
        ({"devices": 1}, FOUR_GPUS, StrategyName.ONE_DEVICE),
        ({"workers": 4}, FOUR_GPUS, StrategyName.MULTI_WORKER),
    ],
)
def test_auto_chooses_a_strategy_with_a_note(choices, machine, strategy):
    resolved = resolve(choices, machine, "cpu")
    assert resolved.spec.strategy is strategy
    note, *_ = resolved.notes
    assert note.startswith(f"strategy {strategy}: ")


@pytest.mark.parametrize(
    ("strategy", "workers", "devices"),
    [("mirrored", 1, 4), ("central-storage", 1, 4), ("multiworker", 4, 1), ("independent", 4, 1), ("one-device", 1, 1)],
)
def test_by_default_every_gpu_is_used(strategy, workers, devices):
    spec = resolve({"strategy": strategy}, FOUR_GPUS, "cpu").spec
    assert (spec.workers, spec.devices, spec.gpus) == (workers, devices, True)


def test_devices_of_each_worker_and_workers_share_the_gpus():
    spec = resolve({"strategy": "multiworker", "devices": 2}, FOUR_GPUS, "cpu").spec
    assert (spec.workers, spec.devices) == (2, 2)
    with pytest.raises(TfdistError, match="4 GPUs"):
        resolve({"strategy": "multiworker", "devices": 2, "workers": 3}, FOUR_GPUS, "cpu")


def test_nccl_is_accepted_with_gpus():
    spec = resolve({"strategy": "mirrored", "cross_device": "nccl", "packs": 2}, FOUR_GPUS, "cpu").spec
    assert (spec.cross_device, spec.packs) == (CrossDevice.NCCL, 2)


@pytest.mark.parametrize(
    ("machine", "choices", "communication", "notes"),
    [
        (FOUR_GPUS, {}, "nccl", ("communication nccl: all workers have GPUs",)),
        (FOUR_GPUS, {"communication": "auto"}, "nccl", ("communication nccl: all workers have GPUs",)),
        (FOUR_GPUS, {"communication": "ring"}, "ring", ()),
        (CPU, {}, "auto", ()),
        (
            Machine((0, 1), ("A100 MIG 3g.20gb",) * 2), {}, "ring",
            ("communication ring: NCCL does not connect MIG instances",),
        ),
        (
            ONE_GPU, {"logical_gpus": 2}, "ring",
            ("communication ring: NCCL accepts each physical GPU once, not its parts",),
        ),
    ],
)  # fmt: skip
def test_workers_with_gpus_communicate_over_nccl_by_default(machine, choices, communication, notes):
    for resolved in (
        resolve({"strategy": "multiworker", **choices}, machine, "cpu"),
        resolve_strategy({"strategy": "multiworker", **choices}, machine),
    ):
        assert (resolved.spec.communication, resolved.notes) == (communication, notes)


@pytest.mark.parametrize(
    ("strategy", "workers", "devices"), [("mirrored", 1, 4), ("multiworker", 4, 1), ("parameter-server", 4, 1)]
)
def test_the_parts_of_a_gpu_are_used_as_if_they_were_gpus(strategy, workers, devices):
    spec = resolve({"strategy": strategy, "logical_gpus": 4}, ONE_GPU, "cpu").spec
    assert (spec.workers, spec.devices, spec.gpus) == (workers, devices, True)
    resolved = resolve({"logical_gpus": 4}, ONE_GPU, "cpu")
    assert resolved.spec.strategy == "mirrored"
    assert resolved.warnings == ("4 logical GPUs share one card: do not infer scaling from this run",)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"strategy": "multiworker", "communication": "nccl"}, "--communication nccl: NCCL accepts each physical GPU"),
        ({"strategy": "mirrored", "cross_device": "nccl"}, "--cross-device nccl: NCCL accepts each physical GPU once"),
        ({"strategy": "mirrored", "devices": 3}, "3 devices .* only 2 GPUs"),
        ({"logical_gpus": 1}, "--set logical_gpus=1: must be at least 2"),
    ],
)
def test_what_a_cut_gpu_cannot_do_is_refused(choices, words):
    with pytest.raises(TfdistError, match=words):
        resolve({"logical_gpus": 2, **choices}, ONE_GPU, "cpu")


def test_a_program_that_is_resumed_cuts_the_gpu_again_unless_its_strategy_is_replaced():
    base = resolve_strategy({"strategy": "mirrored", "logical_gpus": 2}, ONE_GPU).spec
    assert resolve_strategy({}, ONE_GPU, base).spec == base
    assert resolve_strategy({"strategy": "one-device"}, ONE_GPU, base).spec.logical_gpus is None


def test_private_gpu_threads_need_gpus():
    assert resolve({"gpu_threads": "gpu_private"}, FOUR_GPUS, "cpu").spec.gpu_threads == "gpu_private"
    with pytest.raises(TfdistError, match="--set gpu_threads=gpu_private needs GPUs, and none was found: omit it"):
        resolve({"gpu_threads": "gpu_private"}, CPU, "cpu")


@given(replicas=st.integers(1, 16), share=st.integers(1, 100))
def test_a_global_batch_is_divided_among_the_replicas(replicas, share):
    choices = {"strategy": "multiworker", "workers": replicas, "global_batch_size": replicas * share}
    spec = resolve(choices, CPU, "smoke").spec
    assert spec.batch_size == share
    assert spec.global_batch_size == replicas * share


def test_epochs_become_steps_of_the_whole_job():
    one = resolve({"dataset": "digits", "epochs": 2, "batch_size": 32}, CPU, "smoke").spec
    two = resolve({"dataset": "digits", "epochs": 2, "batch_size": 32, "workers": 2}, CPU, "smoke").spec
    asynchronous = resolve(
        {"dataset": "digits", "epochs": 2, "batch_size": 32, "workers": 2, "ps": 1}, CPU, "smoke"
    ).spec
    assert two.steps == one.steps // 2
    assert asynchronous.steps == 2 * two.steps  # each asynchronous step is one worker's batch
    assert one.classes == 10
    assert one.evaluate


def test_too_few_steps_of_epochs_name_the_option_that_was_given():
    few = {"dataset": "digits", "epochs": 1, "batch_size": 128}
    with pytest.raises(
        TfdistError,
        match=r"^--epochs 1: 11 steps are too few to time .*; use more, or --steps 20 in place of --epochs, or",
    ):
        resolve(few, CPU, "smoke")


def test_real_data_trains_longer_than_synthetic():
    assert resolve({}, CPU, "smoke").spec.steps == 30
    assert resolve({"dataset": "digits"}, CPU, "smoke").spec.steps == 1200


def test_more_devices_than_cores_is_allowed_with_a_warning():
    resolved = resolve({"strategy": "mirrored", "devices": 8}, CPU, "smoke")
    assert "2 cores" in resolved.warnings[0]
    assert not resolve({"strategy": "mirrored", "devices": 2}, CPU, "smoke").warnings


def test_a_custom_program_is_pinned_on_request_only():
    assert resolve_strategy({"workers": 2}, CPU).spec.cores_per_device is None
    assert resolve_strategy({"workers": 2, "cores_per_device": 1}, CPU).spec.cores_per_device == 1


def test_a_tpu_pins_no_core_and_shares_no_global_batch():
    assert resolve({"strategy": "tpu"}, CPU, "cpu").spec.cores_per_device is None
    with pytest.raises(TfdistError, match=r"--global-batch-size 64: .* use --batch-size, which is per replica"):
        resolve({"strategy": "tpu", "global_batch_size": 64}, CPU, "cpu")
    with pytest.raises(TfdistError, match=r"--epochs 2.*use --steps"):
        resolve({"strategy": "tpu", "epochs": 2, "dataset": "digits"}, CPU, "cpu")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("strategy", [name for name, row in CATALOG.items() if row.trains_built_in])
def test_a_spec_of_any_preset_and_strategy_survives_json(preset, strategy):
    length = {"steps": 100} if strategy is StrategyName.TPU else {}
    spec = resolve({"strategy": str(strategy), "dataset": "digits", **length}, FOUR_GPUS, preset).spec
    assert TrainingSpec.from_json(spec.to_json()) == spec


def test_mig_instances_are_used_by_a_worker_each():
    machine = Machine((0, 1), ("A100 MIG 3g.20gb",) * 3)
    resolved = resolve_strategy({"strategy": "auto"}, machine)
    assert (resolved.spec.strategy, resolved.spec.workers, resolved.spec.devices) == ("multiworker", 3, 1)
    assert resolved.notes[0] == "strategy multiworker: 3 MIG instances, of which a process can use one"
    assert resolve_strategy({"strategy": "mirrored"}, machine).spec.devices == 1
    assert resolve_strategy({"strategy": "auto"}, Machine((0,), ("A100",) * 2)).spec.strategy == "mirrored"
