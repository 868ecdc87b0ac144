"""Which worker gets which examples, and their format."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from tfdist.models.spec import TrainingSpec

pytestmark = pytest.mark.slow

SPEC = TrainingSpec(image_size=32, batch_size=4, classes=10, seed=3, shuffle=64)


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture
def numbers(tf):
    """100 examples labelled with their index, and the list of decoded indices."""
    from tfdist.models.datasets.table import Examples

    decoded = []

    def decode(number):
        def note(value):
            decoded.append(int(value))
            return value

        return tf.zeros((8, 8, 3)), tf.numpy_function(note, [number], tf.int64, stateful=True)

    examples = Examples(lambda: tf.data.Dataset.range(100), lambda: tf.data.Dataset.range(100, 123), decode, 100)
    return examples, decoded


def labels(dataset, count):
    return [batch.numpy().tolist() for _, batch in dataset.take(count)]


def flat(batches):
    return list(chain.from_iterable(batches))


def test_tensorflow_knows_that_the_batches_never_end(tf, numbers):
    """Else workers ask each other before each batch whether they have one."""
    from tfdist.models.datasets.pipeline import Share, training

    assert training(numbers[0], SPEC, Share()).cardinality() == tf.data.INFINITE_CARDINALITY


def test_a_replicas_examples_do_not_depend_on_its_worker(numbers):
    from tfdist.models.datasets.pipeline import Share, training

    examples, _ = numbers
    one_worker = labels(training(examples, SPEC, Share(1, 0, 4)), 4 * 12)
    four = [labels(training(examples, SPEC, Share(4, worker, 1)), 12) for worker in range(4)]
    two = [labels(training(examples, SPEC, Share(2, worker, 2)), 2 * 12) for worker in range(2)]
    large = labels(training(examples, replace(SPEC, batch_size=16), Share()), 12)
    for step in range(12):
        shares = one_worker[4 * step : 4 * step + 4]
        assert shares == [share[step] for share in four]
        assert shares == two[0][2 * step : 2 * step + 2] + two[1][2 * step : 2 * step + 2]
        assert flat(shares) == large[step]
    order = flat(one_worker)
    assert set(Counter(order[:100]).values()) == {1}  # an epoch shows each example once
    assert order[:100] != list(range(100))
    assert order[:80] != order[100:180]  # and the next one in another order


def test_a_worker_decodes_only_its_share(numbers):
    from tfdist.models.datasets.pipeline import Share, training

    examples, decoded = numbers
    spec = replace(SPEC, shuffle=1)
    assert labels(training(examples, spec, Share(2, 1, 1)), 2) == [[4, 5, 6, 7], [12, 13, 14, 15]]
    assert decoded
    assert all(number // 4 % 2 == 1 for number in decoded)


def test_each_held_out_example_is_read_once_by_one_worker(numbers):
    from tfdist.models.datasets.pipeline import Share, held_out

    examples, _ = numbers
    batches = [flat(labels(held_out(examples, SPEC, Share(2, worker)), -1)) for worker in range(2)]
    assert sorted(flat(batches)) == list(range(100, 123))


def check_images(dataset, spec, classes):
    images, targets = next(iter(dataset))
    assert images.shape == (spec.batch_size, spec.image_size, spec.image_size, 3)
    assert (images.dtype.name, targets.dtype.name) == ("float32", "int32")
    assert 0.0 <= float(images.numpy().min()) < 0.3
    assert 0.5 < float(images.numpy().max()) <= 1.0
    assert set(targets.numpy().tolist()) <= set(range(classes))
    return images.numpy(), targets.numpy()


def load(spec):
    from tfdist.models.datasets import table
    from tfdist.models.datasets.pipeline import Share, held_out, training

    examples = table.examples(spec.dataset, spec.data_dir)
    return training(examples, spec, Share()), held_out(examples, spec, Share())


def test_digits_are_read(tf):
    train, test = load(replace(SPEC, dataset="digits", shuffle=1, batch_size=40))
    images, targets = check_images(train, replace(SPEC, batch_size=40), 10)
    assert targets[:8].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert images[:, 16, 16, 0][targets == 0].mean() < images[:, 16, 16, 0][targets == 1].mean()  # a zero is hollow
    assert sum(len(batch) for _, batch in test) == 359


def test_a_folder_of_images_is_read(tf, tmp_path):
    encoders = {"jpg": tf.io.encode_jpeg, "png": tf.io.encode_png}
    for label, colour in enumerate(((250, 0, 0), (0, 0, 250))):
        (tmp_path / "ab"[label]).mkdir()
        for number in range(10):
            image = np.full((20 + number, 30, 3), colour, np.uint8)
            kind = ("jpg", "png")[number % 2]
            (tmp_path / "ab"[label] / f"{number}.{kind}").write_bytes(encoders[kind](image).numpy())
    spec = replace(SPEC, dataset=f"folder:{tmp_path}", batch_size=18)
    train, test = load(spec)
    images, targets = check_images(train, spec, 2)
    assert ((images[:, 5, 5, 2] > 0.9) == (targets == 1)).all()
    assert sum(len(batch) for _, batch in test) == 2


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Small data sets in the format of TFDS: cats_vs_dogs (one split, no test part) and cifar10 (two)."""
    tfds = pytest.importorskip("tensorflow_datasets")
    root = tmp_path_factory.mktemp("tfds")
    text = tfds.features.Text()
    prepare(tfds, root, "CatsVsDogs", 2, {"image/filename": text}, {"train": 60})
    prepare(tfds, root, "Cifar10", 10, {"id": text}, {"train": 50, "test": 20})
    return root


def prepare(tfds, root, name, classes, text, sizes):
    """Write what `download_and_prepare` writes for the real data set: its features, other pictures."""
    features = {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=classes), **text}

    def picture(number):
        image = np.full((24 + number % 5, 30, 3), 20, np.uint8)
        image[:, :, 0] = 25 * (number % classes)
        image[0, 0] = 255
        return {"image": image, "label": number % classes, **dict.fromkeys(text, f"{number}.jpg")}

    def info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def splits(self, manager):
        return {split: ((number, picture(number)) for number in range(size)) for split, size in sizes.items()}

    methods = {"_info": info, "_split_generators": splits, "_generate_examples": None, "pkg_dir_path": root}
    bases, version = (tfds.core.GeneratorBasedBuilder,), tfds.core.Version("4.0.1")
    # TFDS registers a name once in a process; another module's tests may come between two uses of this fixture.
    builder = type(name, bases, {"VERSION": version, **methods}, skip_registration=True)
    builder(data_dir=str(root)).download_and_prepare()


@pytest.mark.parametrize(
    ("name", "classes", "train", "test"), [("cats_vs_dogs", 2, 54, 6), ("cifar10", 10, 50, 20)], ids=["cats", "cifar"]
)
def test_prepared_data_sets_are_read(prepared, name, classes, train, test):
    from tfdist.models.datasets import table

    info = table.describe(f"tfds:{name}", str(prepared))
    assert (info.classes, info.train_examples, info.test_examples) == (classes, train, test)
    spec = replace(SPEC, dataset=f"tfds:{name}", data_dir=str(prepared), batch_size=train)
    training, held_out = load(spec)
    images, targets = check_images(training, spec, classes)
    assert np.abs(images[:, 16, 16, 0] * 255 - 25 * targets).max() < 2  # labels still match pictures
    assert sum(len(batch) for _, batch in held_out) == test


def test_a_training_continues_at_any_example_with_any_number_of_workers(numbers):
    from tfdist.models.datasets.pipeline import Share, training

    examples, decoded = numbers
    order = flat(labels(training(examples, SPEC, Share()), 75))
    for first in (0, 4, 96, 100, 120, 204):
        decoded.clear()
        assert flat(labels(training(examples, SPEC, Share(), first), 12)) == order[first : first + 48]
        assert set(decoded) <= set(order[first:]), "what is skipped is not decoded"
    of_three = [flat(labels(training(examples, SPEC, Share(3, worker), 120), 4)) for worker in range(3)]
    steps = [flat(share[4 * step : 4 * step + 4] for share in of_three) for step in range(4)]
    assert flat(steps) == order[120:168]


def test_the_order_depends_on_the_seed_and_on_nothing_else(numbers, tf):
    from tfdist.models.datasets.pipeline import Share, training

    examples, _ = numbers
    orders = []
    for global_seed, seed in ((1, 3), (0, 3), (0, 0), (0, 0), (3, 4)):
        tf.random.set_seed(global_seed)
        orders.append(flat(labels(training(examples, replace(SPEC, seed=seed), Share()), 50)))
    assert orders[0] == orders[1] != orders[2] == orders[3] != orders[4]
    tf.random.set_seed(0)
