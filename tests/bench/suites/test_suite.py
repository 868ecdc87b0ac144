import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import adjust, built_in_suites, load_suite, narrow, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.text import has_controls
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import CrossDevice, StrategyName

GOOD = """
name = "mine"
rounds = 2
timeout = 60
[defaults]
batch_size = 8
[[arms]]
name = "one"
strategy = "one-device"
[[arms]]
name = "two"
strategy = "mirrored"
devices = 2
cross_device = "hierarchical-copy"
batch_size = 16
"""


def sentence_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TfdistError) as raised:
        load_suite(str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_file_becomes_arms_with_the_defaults_in_them(tmp_path: Path) -> None:
    path = tmp_path / "a folder; it's odd.toml"
    path.write_text(GOOD)
    suite = load_suite(str(path))
    assert (suite.name, suite.rounds, suite.timeout_s, suite.scaling, suite.seed) == ("mine", 2, 60, "weak", 0)
    one, two = suite.arms
    assert dict(one.choices) == {"batch_size": 8, "strategy": StrategyName.ONE_DEVICE}
    assert two.choices["batch_size"] == 16
    assert two.choices["cross_device"] is CrossDevice.HIERARCHICAL_COPY


@pytest.mark.parametrize("name", built_in_suites())
def test_a_suite_survives_json(name: str) -> None:
    suite = load_suite(name)
    assert parse_suite(json.loads(json.dumps(suite.to_json())), "bench.json") == suite


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('rounds = 2', 'ronds = 2'), "did you mean rounds?"),
        (('batch_size = 8', 'batchsize = 8'), "did you mean batch_size?"),
        (('devices = 2', 'zzz = 2'), "choose from"),
        (('name = "two"', 'name = "one"'), "two arms called 'one'"),
        (('name = "two"', ''), "arm number 2, has no name"),
        (('strategy = "one-device"', ''), "no strategy"),
        (('"one-device"', '"one-devise"'), "one-device, mirrored"),
        (('"one-device"', '"auto"'), "name a strategy"),
        (('batch_size = 8', 'batch_size = "8"'), "must be an integer"),
        (('batch_size = 8', 'batch_size = true'), "must be an integer"),
        (('batch_size = 8', 'alpha = "wide"'), "a number"),
        (('batch_size = 8', 'evaluate = 1'), "true or false"),
        (('rounds = 2', 'rounds = 0'), "must be at least 1"),
        (('rounds = 2', 'rounds = 2\nincarnations = 3'), "1 to the number of rounds, 2"),
        (('rounds = 2', 'incarnations = 0'), "1 to the number of rounds, 12"),
        (('rounds = 2', 'incarnations = 2\nisolated = true'), "omit incarnations"),
        (('timeout = 60', 'timeout = -1'), "timeout = -1: must be a positive number of seconds"),
        (('timeout = 60', 'turn = 0'), "turn = 0: must be a positive number of seconds"),
        (('timeout = 60', 'turn = nan'), "turn = nan: must be a positive number of seconds"),
        (('timeout = 60', 'window = inf'), "window = inf: must be a positive number of seconds"),
        (('timeout = 60', 'warmup = -0.5'), "warmup = -0.5: must be 0 seconds or more"),
        (('timeout = 60', 'timeout = 2'), "turn = 2.5: must be shorter than the timeout of a turn, 2"),
        (('timeout = 60', 'turn = 0.2'), "turn = 0.2: must be at least as long as a window, 0.5"),
        (('timeout = 60', 'turn = "long"'), "turn = long: give a duration"),
        (('batch_size = 8', 'steps = 40'), "[defaults], has steps, but a bench trains in turns of seconds"),
        (('devices = 2', 'warmup_steps = 4'), "arm 'two', has warmup_steps, but a bench trains in turns"),
        (('devices = 2', 'log_device_placement = true'), "arm 'two', has log_device_placement, but its log would slow"),
        (('devices = 2', 'api = "estimator"'), "has api = 'estimator': TensorFlow has no tf.estimator since 2.16"),
        (('batch_size = 8', 'command = "python train.py"'), "give a list of words"),
        (('devices = 2', 'command = []'), "give a list of words"),
        (('devices = 2', 'command = ["python", 3]'), "give a list of words"),
        (('devices = 2', 'command = ["true"]'), "has batch_size, which is for the built-in training, and a command"),
        (('timeout = 60', 'preset = "huge"'), "smoke, cpu, reference"),
        (('timeout = 60', 'scaling = "wide"'), "weak"),
        (('timeout = 60', 'scaling = "strong"'), "use that instead"),
        (('batch_size = 8', 'global_batch_size = 8'), "use that instead"),
        (('rounds = 2', 'rounds = 2 ='), "not TOML"),
        (('rounds = 2', 'baseline = "ones"'), "has baseline = 'ones': did you mean one? Choose from one, two"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert change[0] in GOOD
    assert expected in sentence_of(tmp_path, GOOD.replace(*change, 1))


def test_a_suite_without_arms_is_refused(tmp_path: Path) -> None:
    assert "no arms" in sentence_of(tmp_path, 'name = "empty"\n')
    assert "make each a table" in sentence_of(tmp_path, 'arms = ["one"]\n')


def test_strong_scaling_fixes_the_global_batch(tmp_path: Path) -> None:
    text = GOOD.replace("rounds = 2", 'scaling = "strong"').replace("batch_size = 16", "")
    assert "no global_batch_size" in sentence_of(tmp_path, text.replace("batch_size = 8", ""))
    path = tmp_path / "strong.toml"
    path.write_text(text.replace("batch_size = 8", "global_batch_size = 8"))
    assert [arm.choices["global_batch_size"] for arm in load_suite(str(path)).arms] == [8, 8]


def test_defaults_of_the_built_in_training_are_not_for_arms_with_a_command(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    own = 'command = ["true"]\nintra_op_threads = 2'
    path.write_text(
        GOOD.replace("batch_size = 8", "batch_size = 8\nsteps_per_call = 2").replace("batch_size = 16", own)
    )
    one, two = load_suite(str(path)).arms
    assert dict(one.choices) == {"batch_size": 8, "steps_per_call": 2, "strategy": StrategyName.ONE_DEVICE}
    assert set(two.choices) == {"strategy", "devices", "cross_device", "intra_op_threads"}
    assert "[defaults], has batch_size, which is for the built-in training" in sentence_of(
        tmp_path, 'command = ["true"]\n' + GOOD.replace("batch_size = 16", "")
    )


def test_an_unknown_key_lists_those_that_have_an_effect(tmp_path: Path) -> None:
    message = sentence_of(tmp_path, GOOD.replace("devices = 2", "cpus = 4"))
    assert "batch_size" in message
    assert "steps," not in message


def test_an_unknown_suite_lists_the_built_in_ones() -> None:
    with pytest.raises(
        TfdistError, match="batch, classic, convergence, cpu, gpu, hosts, knobs, quick, smoke, storage, stragglers"
    ):
        load_suite("smokey")


def test_a_file_of_the_current_folder_is_a_suite_only_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    built_in = load_suite("cpu")
    for name in ("cpu", "gate", "gate.toml"):
        Path(name).write_text(GOOD)
    assert load_suite("cpu") == built_in
    assert [load_suite(name).name for name in ("./cpu", "./gate", "gate.toml")] == ["mine"] * 3
    with pytest.raises(
        TfdistError, match=r"^--suite gate: No such file or directory; .*, or for the file write \./gate$"
    ):
        load_suite("gate")


def test_a_folder_is_not_a_suite(tmp_path: Path) -> None:
    with pytest.raises(TfdistError, match="directory"):
        load_suite(str(tmp_path))


def test_arms_are_chosen_by_pattern() -> None:
    suite = narrow(load_suite("cpu"), ["mirrored/*", "one-device"])
    names = [arm.name for arm in suite.arms]
    assert names == ["one-device", "mirrored/auto", "mirrored/hierarchical-copy", "mirrored/reduction-to-one"]


def test_a_pattern_that_matches_nothing_lists_the_arms() -> None:
    with pytest.raises(TfdistError, match=r"'nope' matches no arm.*one-device, independent"):
        narrow(load_suite("cpu"), ["nope"])


def test_numbers_are_adjusted_and_incarnations_follow_the_rounds_unless_chosen() -> None:
    suite = load_suite("cpu")
    assert adjust(suite, {"rounds": 5, "turn_s": 1.5, "seed": None}).to_json() == {
        **suite.to_json(), "rounds": 5, "turn": 1.5}  # fmt: skip
    assert adjust(suite, {"rounds": 1}).incarnations == 1
    assert adjust(suite, {"rounds": 4, "isolated": True}).incarnations == 4
    assert adjust(adjust(suite, {"isolated": True}), {"rounds": 3}).incarnations == 3


def test_a_training_from_turn_to_turn_is_not_isolated() -> None:
    with pytest.raises(TfdistError, match="--isolated: arms of suite convergence continue their training"):
        adjust(load_suite("convergence"), {"isolated": True})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rounds": 0}, "--rounds 0: must be at least 1 (3 for a verdict)"),
        ({"rounds": 2, "incarnations": 3}, "--incarnations 3: must be 1 to the number of rounds, 2"),
        ({"turn_s": 0.1}, "--turn 0.1: must be at least as long as a window, 0.5"),
        ({"turn_s": 600.0}, "--turn 600: must be shorter than the timeout of a turn, 600"),
        (
            {"isolated": True, "incarnations": 2},
            "--isolated: starts the processes again for each turn; omit --incarnations",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_sentence(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(TfdistError) as raised:
        adjust(load_suite("cpu"), changes)
    assert str(raised.value) == expected


@pytest.mark.parametrize("name", [name for name in built_in_suites() if name not in ("quick", "smoke", "convergence")])
def test_built_in_suites_that_measure_start_each_arm_four_times(name: str) -> None:
    assert load_suite(name).incarnations == 4


@pytest.mark.parametrize("name", ["smoke", "cpu", "hosts", "knobs", "classic", "convergence", "stragglers", "storage"])
def test_built_in_suites_measure_one_arm_twice(name: str) -> None:
    """Without GPUs, AUTO is RING."""
    done = {
        json.dumps({**arm.choices, "communication": "ring", "hosts": arm.hosts}, sort_keys=True)
        for arm in load_suite(name).arms
    }
    assert len(done) == len(load_suite(name).arms) - 1


def test_secrets_of_a_command_are_not_saved() -> None:
    table = {"arms": [{"name": "a", "strategy": "one-device", "command": ["python", "t.py", "--token", "abc"]}]}
    suite = parse_suite(table, "s")
    assert suite.arms[0].command[-1] == "abc"
    assert "abc" not in json.dumps(suite.to_json())


@pytest.mark.parametrize("name", ["smoke", "cpu"])
def test_the_cpu_suites_run_every_strategy_on_two_cores(name: str) -> None:
    suite = load_suite(name)
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
    assert not arms.refused
    assert not arms.warnings
    assert {spec.strategy for spec in arms.specs.values()} == {
        name for name, row in CATALOG.items() if not row.graph and row.trains_built_in
    } - {
        StrategyName.TPU,
        StrategyName.NO_STRATEGY,
    }
    assert all(spec.replicas in (1, 2) for spec in arms.specs.values())
    assert all(isinstance(spec, TrainingSpec) and not spec.evaluate for spec in arms.specs.values())


def test_the_suite_of_knobs_runs_all_its_arms_on_two_cores() -> None:
    suite = load_suite("knobs")
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
    assert not arms.refused
    assert not arms.warnings
    assert {spec.replicas for name, spec in arms.specs.items() if "one-device" not in name} == {2}
    batches = {(spec.strategy, spec.batch_size) for spec in arms.specs.values() if isinstance(spec, TrainingSpec)}
    assert batches >= {(name, batch) for name in ("one-device", "multiworker", "mirrored") for batch in (16, 32, 64)}


def test_the_suites_of_one_question_run_all_their_arms_on_two_cores() -> None:
    for name in ("classic", "convergence", "stragglers", "storage", "batch"):
        suite = load_suite(name)
        arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
        assert not arms.refused
        assert all("share 2 cores" in warning for warning in arms.warnings)
        assert len(arms.specs) == len(suite.arms)
    assert len(arms.specs) == 10, "each batch size is an arm"


@pytest.mark.parametrize(("gpus", "runs"), [(1, 6), (2, 24), (4, 42), (8, 60)])
def test_the_gpu_suite_runs_the_arms_that_fit_and_refuses_the_others(gpus: int, runs: int) -> None:
    suite = load_suite("gpu")
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ("A",) * gpus)), suite.preset)
    assert (len(arms.specs), len(arms.refused)) == (runs, 60 - runs)
    assert all("GPU" in reason for reason in arms.refused.values())
    assert max(spec.replicas for spec in arms.specs.values()) == gpus
    one, again = (arms.specs[f"one-device/{name}"] for name in ("float32", "again"))
    assert one == again


def test_the_gpu_suite_is_refused_arm_by_arm_without_gpus() -> None:
    suite = load_suite("gpu")
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
    assert not arms.specs
    assert len(arms.refused) == len(suite.arms)
    assert all("GPU" in reason for reason in arms.refused.values())


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["name", "rounds", "arms", "defaults", "matrix", "exclude", "strategy", "timeout", "x"]), inner)))  # fmt: skip
def test_any_table_is_a_suite_or_a_sentence(value: object) -> None:
    table = value if isinstance(value, dict) else {"arms": value}
    with contextlib.suppress(TfdistError):
        assert parse_suite(table, "x").arms
    with pytest.raises(TfdistError):
        parse_suite({**table, "surely_unknown": 1}, "x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "mine"', 'name = "m\\u001bine"'),
        ('name = "mine"', 'description = "m\\nine"'),
        ('name = "one"', 'name = "o\\u202ene"'),
        ("batch_size = 8", 'dataset = "digits\\n"'),
    ],
)
def test_control_characters_are_refused(tmp_path: Path, old: str, new: str) -> None:
    sentence = sentence_of(tmp_path, GOOD.replace(old, new))
    assert "has a line break or another control character; remove it" in sentence
    assert not has_controls(sentence)


def test_control_characters_in_the_names_of_a_matrix_are_refused(tmp_path: Path) -> None:
    matrix = '[matrix]\nstrategy = [{ name = "a\\u0007", strategy = "mirrored" }]\n'
    assert r"has an arm 'a\x07': has a line break" in sentence_of(tmp_path, matrix)


def test_durations_and_sizes_are_written_as_on_the_command_line():
    arm = {"name": "a", "strategy": "multiworker", "bytes_per_pack": "4M", "timeout_collective": "1m"}
    suite = parse_suite({"name": "x", "turn": "500ms", "warmup": 3, "arms": [arm]}, "x.toml")
    assert (suite.turn_s, suite.warmup_s) == (0.5, 3)
    choices = {"strategy": "multiworker", "bytes_per_pack": 4 << 20, "timeout_collective_s": 60.0}
    assert suite.arms[0].choices == choices
