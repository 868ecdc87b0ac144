"""Describing a data set without TensorFlow."""

import json
import subprocess
import sys

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.table import DataInfo, describe


def prepare(root, name="cats_vs_dogs", version="4.0.1", *, splits=None, features=None, file_format="tfrecord"):
    """The two metadata files of a prepared data set."""
    folder = root / name / version
    folder.mkdir(parents=True)
    splits = {"train": ["100", "23"]} if splits is None else splits
    features = features or {"image": {"image": {}}, "label": {"classLabel": {"numClasses": "2"}}}
    info = {
        "splits": [{"name": key, "shardLengths": value} for key, value in splits.items()],
        "fileFormat": file_format,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))
    return folder


def test_synthetic_data_has_any_size():
    assert describe("synthetic") == DataInfo(None, None, 0)


def test_digits():
    assert describe("digits") == DataInfo(10, 1438, 359)


def test_without_a_test_split_a_tenth_is_held_out(tmp_path):
    prepare(tmp_path)
    assert describe("tfds:cats_vs_dogs", str(tmp_path)) == DataInfo(2, 111, 12)


def test_the_newest_version_with_its_test_split_is_used(tmp_path, monkeypatch):
    prepare(tmp_path, "cifar10", "3.9.0")
    prepare(tmp_path, "cifar10", "3.10.0", splits={"train": ["50"], "test": ["7"]})
    (tmp_path / "cifar10" / "incomplete.3.11.0").mkdir()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert describe("tfds:cifar10") == DataInfo(2, 50, 7)
    assert describe("tfds:cifar10/3.9.0").train_examples == 111


def test_a_configuration_is_part_of_the_name(tmp_path):
    prepare(tmp_path, "set/small")
    assert describe("tfds:set/small", str(tmp_path)).classes == 2


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"features": {"audio": {}, "label": {"classLabel": {"numClasses": "2"}}}}, "audio, label"),
        ({"features": {"image": {"image": {}}, "label": {"tensor": {}}}}, "image and label"),
        ({"file_format": "array_record"}, "array_record"),
        ({"splits": {"test": ["5"]}}, "no train split"),
    ],
)
def test_an_unusable_prepared_data_set_is_refused(how, sentence, tmp_path):
    prepare(tmp_path, **how)
    with pytest.raises(TfdistError, match=sentence):
        describe("tfds:cats_vs_dogs", str(tmp_path))


def test_missing_data_is_refused_with_the_command_to_prepare_it(tmp_path):
    with pytest.raises(TfdistError) as caught:
        describe("tfds:cats_vs_dogs", str(tmp_path))
    sentence = str(caught.value)
    assert "\n" not in sentence
    code = sentence.partition('python -c "')[2].removesuffix('"')
    assert f"tfds.builder('cats_vs_dogs', data_dir='{tmp_path}').download_and_prepare()" in code
    compile(code, "advice", "exec")


def test_a_truncated_file_is_named(tmp_path):
    (prepare(tmp_path) / "features.json").write_text("{")
    with pytest.raises(TfdistError, match=r"features\.json cannot be read"):
        describe("tfds:cats_vs_dogs", str(tmp_path))


@pytest.mark.parametrize("name", ["", "digit", "tfds", "tfds:", "folder", "digits:10", "synthetic:x", "http://x"])
def test_unknown_names_are_refused(name):
    with pytest.raises(TfdistError, match="folder:PATH"):
        describe(name)


def images(folder, **counts):
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number:03}.PNG").touch()
        (folder / name / "notes.txt").touch()
    return f"folder:{folder}"


def test_a_folder_of_images(tmp_path):
    assert describe(images(tmp_path / "a:b", cat=12, dog=19)) == DataInfo(2, 28, 3)


def test_hidden_folders_and_files_are_no_images(tmp_path):
    name = images(tmp_path, a=20, b=20)
    before = describe(name, None)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / "a" / "._1.png").touch()
    assert describe(name, None) == before


def test_the_split_of_a_folder_is_fixed_and_disjoint(tmp_path):
    from tfdist.models.datasets.folder import split

    images(tmp_path, b=20, a=20)
    train, test = split(tmp_path)
    assert (train, test) == split(tmp_path)
    assert not set(train) & set(test)
    assert {label for _, label in test} == {0, 1}
    assert test[0] == (str(tmp_path / "a" / "009.PNG"), 0)


@pytest.mark.parametrize(
    ("counts", "sentence"), [({}, "subfolders"), ({"a": 50}, "1 subfolders"), ({"a": 4, "b": 5}, "9 images")]
)
def test_a_folder_with_too_few_images_is_refused(counts, sentence, tmp_path):
    with pytest.raises(TfdistError, match=sentence):
        describe(images(tmp_path, **counts))
    with pytest.raises(TfdistError, match="no such folder"):
        describe(f"folder:{tmp_path}/nowhere")


def test_describing_imports_no_tensorflow(tmp_path):
    prepare(tmp_path)
    names = ["synthetic", "digits", "tfds:cats_vs_dogs", images(tmp_path / "images", a=9, b=9)]
    code = (
        "import sys; from tfdist.models.datasets.table import describe\n"
        f"for name in {names}: describe(name, {str(tmp_path)!r})\n"
        "sys.exit('tensorflow' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
