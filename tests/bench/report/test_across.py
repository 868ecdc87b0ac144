from tfdist.bench.report.across import spec_differences
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Communication

SPEC = TrainingSpec().to_json()


def test_equal_specs_do_the_same_work() -> None:
    assert spec_differences(SPEC, SPEC) == ([], [])


def test_batch_data_and_devices_are_work() -> None:
    for change in ({"batch_size": 32}, {"dataset": "digits"}, {"workers": 2}, {"image_size": 96}, {"unheard_of": 1}):
        ((name, value),) = change.items()
        assert spec_differences({**SPEC, **change}, SPEC) == ([f"{name}: {value}, not {SPEC.get(name)}"], [])


def test_communication_is_an_option() -> None:
    nccl = TrainingSpec(communication=Communication.NCCL).to_json()
    assert spec_differences(nccl, SPEC) == ([], ["communication: nccl, not auto"])


def test_the_number_of_steps_has_no_effect_on_a_turn() -> None:
    assert spec_differences({**SPEC, "steps": 7, "format": 9, "seed": 3}, SPEC) == ([], [])


def test_an_earlier_version_without_a_field_did_what_is_now_the_default() -> None:
    earlier = {key: value for key, value in SPEC.items() if key not in ("gpu_threads", "steps_per_call", "shuffle")}
    assert spec_differences(SPEC, earlier) == ([], [])
    assert spec_differences({**SPEC, "shuffle": 9}, earlier) == (["shuffle: 9, not 1024"], [])
