"""Which checkpoints of a folder count, and which specs may continue them."""

import json
from dataclasses import replace

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.checkpoints import (
    Manifest,
    check_can_be_saved,
    check_empty,
    check_same_training,
    differences,
    list_checkpoints,
    name_of,
    step_of,
)
from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.strategies.options import StrategyName

SPEC = TrainingSpec(steps=200, seed=3)


def save(folder, step, final=False):
    """A checkpoint as TensorFlow and tfdist write it, with fake contents."""
    name = name_of(step)
    sizes = {f"{name}.index": 7, f"{name}.data-00000-of-00001": 20}
    for file, size in sizes.items():
        (folder / file).write_bytes(b"x" * size)
    manifest = Manifest(step, step * 8, json.loads(json.dumps(SPEC.to_json())), sizes, final=final)
    (folder / manifest.file).write_text(manifest.to_text())
    return manifest


def steps(folder):
    return [manifest.step for manifest in list_checkpoints(str(folder)).complete]


def test_the_newest_is_first_whatever_the_number_of_digits(tmp_path):
    saved = {step: save(tmp_path, step) for step in (50, 100, 123_456_789)}
    listing = list_checkpoints(str(tmp_path))
    assert listing.complete == (saved[123_456_789], saved[100], saved[50])
    assert listing.newest == saved[123_456_789]
    assert listing.problems == {}


def test_a_folder_without_checkpoints_has_none(tmp_path):
    (tmp_path / "notes.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "missing"):
        assert list_checkpoints(str(folder)).newest is None
        check_empty(list_checkpoints(str(folder)), str(folder))


@pytest.mark.parametrize(
    ("file", "damage", "problem"),
    [
        ("step-00000100.json", lambda path: path.unlink(), None),
        ("step-00000100.json", lambda path: path.write_text('{"format": 1, "st'), "cannot be read"),
        ("step-00000100.json", lambda path: path.write_text("[]"), "format 1"),
        ("step-00000100.json", lambda path: path.write_text('{"format": 1, "step": 100}'), "examples is missing"),
        ("step-00000100.json", lambda path: path.write_bytes(b"\xff\xfe"), "cannot be read"),
        ("step-00000100.index", lambda path: path.unlink(), "step-00000100.index is missing"),
        ("step-00000100.data-00000-of-00001", lambda path: path.write_bytes(b"x" * 19), "has 19 bytes, not 20"),
    ],
)
def test_an_incomplete_checkpoint_does_not_count_and_the_reason_names_the_file(tmp_path, file, damage, problem):
    save(tmp_path, 50)
    save(tmp_path, 100)
    damage(tmp_path / file)
    assert steps(tmp_path) == [50]
    problems = list_checkpoints(str(tmp_path)).problems
    assert list(problems) == ([] if problem is None else [100])
    assert problem is None or (problem in problems[100] and file in problems[100])


def test_files_belong_to_a_step():
    assert step_of("step-00000120.data-00000-of-00001") == 120
    assert step_of("step-00000120_temp") == 120
    assert step_of("step-120.json") is None
    assert step_of("checkpoint") is None


def test_a_manifest_survives_a_round_trip(tmp_path):
    manifest = save(tmp_path, 50, final=True)
    assert Manifest.from_text(manifest.to_text()) == manifest


def test_steps_hosts_timeouts_and_what_only_measures_may_change():
    changed = replace(SPEC, steps=999, examples=10, workers=3, timeout_collective_s=5.0, evaluate=True)
    changed = replace(changed, step_times=False, count_updates=True)
    assert differences(SPEC.to_json(), changed) == ()


def test_another_training_is_refused_with_every_difference(tmp_path):
    manifest = save(tmp_path, 50)
    changed = replace(SPEC, seed=4, optimizer=Optimizer.SGD)
    with pytest.raises(
        TfdistError, match=r"step 50.*--set optimizer=adam \(now sgd\) and --set seed=3 \(now 4\).*use the"
    ):
        check_same_training(manifest, changed, str(tmp_path))


def test_a_field_that_the_saved_spec_lacks_had_its_default():
    saved = {key: value for key, value in SPEC.to_json().items() if key != "xla"}
    assert differences(saved, SPEC) == ()
    assert differences(saved, replace(SPEC, xla=True)) == ("--no-xla (now True)",)


def test_a_folder_with_checkpoints_is_refused_without_resume(tmp_path):
    save(tmp_path, 50)
    with pytest.raises(TfdistError, match="step 50; use --resume"):
        check_empty(list_checkpoints(str(tmp_path)), str(tmp_path))
    (tmp_path / "step-00000050.index").unlink()
    with pytest.raises(TfdistError, match="step 50; use --resume"):
        check_empty(list_checkpoints(str(tmp_path)), str(tmp_path))


def test_independent_trainings_are_not_saved():
    check_can_be_saved(SPEC)
    with pytest.raises(TfdistError, match="independent"):
        check_can_be_saved(replace(SPEC, strategy=StrategyName.INDEPENDENT))
