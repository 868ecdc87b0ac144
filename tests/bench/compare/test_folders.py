import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.compare.benches import STEP_S, save_bench
from tests.bench.conftest import record, save_record
from tfdist.bench.compare.folders import compare_folders
from tfdist.bench.compare.page import sentences
from tfdist.launch.errors import TfdistError


def verdicts(compared: object) -> dict[str, str]:
    return {c.arm: str(c.comparison.verdict) if c.comparison else c.reason for c in compared.changes}  # type: ignore[attr-defined]


def test_the_same_bench_twice_has_no_difference(tmp_path: Path) -> None:
    compared = compare_folders(save_bench(tmp_path / "a"), save_bench(tmp_path / "b", seed=1))
    assert compared.anchor == "one-device"
    assert set(verdicts(compared).values()) == {"cannot tell"}
    assert compared.too_slow(0.05) == ()


def test_an_arm_with_a_burn_of_ten_per_cent_is_slower_and_no_other(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    compared = compare_folders(base, save_bench(tmp_path / "b", {"mirrored/auto": 1.11}, seed=1))
    assert verdicts(compared) == {
        "one-device": "cannot tell",
        "mirrored/auto": "slower",
        "multiworker/ring": "cannot tell",
    }
    assert compared.too_slow(0.03) == ("mirrored/auto",)
    assert compared.too_slow(0.2) == ()


def test_another_machine_is_anchored_and_its_one_device_arm_is_not_compared(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    new = save_bench(tmp_path / "b", seed=1, machine={"cpu": "B CPU"}, speed=1.2)
    compared = compare_folders(base, new)
    assert compared.machine == ("cpu: B CPU, not A CPU",)
    assert verdicts(compared)["one-device"] == "the anchor, on another machine"
    assert verdicts(compared)["mirrored/auto"] == "cannot tell"
    assert compared.machine_ratio == pytest.approx(1.2, rel=0.02)
    fewer = compare_folders(*(save_bench(tmp_path / f"{arm} {number}", {"mirrored/auto": 0.8} if number else {}, number,
                              arms=dict(list(STEP_S.items())[:2]), machine={"cpu": f"{number} CPU"})
                              for number, arm in enumerate(("base", "new"))))  # fmt: skip
    assert fewer.unsure(0.05) == (), "of two arms too, the anchor is not one that may be slower"
    plain = compare_folders(base, new, "none")
    assert plain.changes[1].comparison is not None
    assert plain.changes[1].comparison.ratio == pytest.approx(1.2, rel=0.02)


def test_another_machine_without_an_anchor_is_refused(tmp_path: Path) -> None:
    arms = {arm: step for arm, step in STEP_S.items() if arm != "one-device"}
    base = save_bench(tmp_path / "a", arms=arms)
    new = save_bench(tmp_path / "b", arms=arms, machine={"cpu": "B CPU"})
    with pytest.raises(TfdistError, match=r"different machines \(cpu: B CPU, not A CPU\).*--baseline none"):
        compare_folders(base, new)
    assert compare_folders(base, new, "multiworker/ring").anchor == "multiworker/ring"


def test_other_work_is_listed_and_not_compared(tmp_path: Path) -> None:
    compared = compare_folders(save_bench(tmp_path / "a"), save_bench(tmp_path / "b", spec={"image_size": 96}))
    assert verdicts(compared)["mirrored/auto"] == "different work: image_size: 96, not 224"


def test_json_has_both_what_differs_and_why_an_arm_is_not_compared(tmp_path: Path) -> None:
    other = save_bench(tmp_path / "b", spec={"image_size": 96, "intra_op_threads": 1})
    arms = compare_folders(save_bench(tmp_path / "a"), other).to_json(None)["arms"]
    arm = next(each for each in arms if each["arm"] == "mirrored/auto")
    assert (arm["verdict"], arm["differs"]) == ("not compared", "intra_op_threads: 1, not None")
    assert arm["not_compared"] == "different work: image_size: 96, not 224"
    with pytest.raises(TfdistError, match=r"--baseline mirrored/auto: it cannot be compared itself \(different work"):
        compare_folders(tmp_path / "a", tmp_path / "b", "mirrored/auto")


def test_other_work_says_nothing_about_the_machine(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    new = save_bench(tmp_path / "b", {"mirrored/auto": 9.0, "multiworker/ring": 9.0}, seed=1, spec={"image_size": 96})
    assert compare_folders(base, new).machine_ratio == pytest.approx(1.0, rel=0.02)


def test_other_options_are_compared_and_named(tmp_path: Path) -> None:
    compared = compare_folders(save_bench(tmp_path / "a"), save_bench(tmp_path / "b", spec={"bytes_per_pack": 4}))
    assert compared.changes[1].options == ("bytes_per_pack: 4, not None",)
    assert compared.changes[1].comparison is not None


def test_arms_of_one_side_are_listed_with_the_reason(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    new = save_bench(tmp_path / "b", arms={**dict(list(STEP_S.items())[:2]), "mirrored/new": 0.1})
    failed = replace(record("multiworker/ring", strategy="multiworker", status="failed", reason="boom"), order=99)
    save_record(new, failed)
    compared = compare_folders(base, new)
    assert compared.only_base == ("multiworker/ring (failed in b: boom)",)
    assert compared.only_new == ("mirrored/new",)


def test_benches_without_a_common_arm_are_refused(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    new = save_bench(tmp_path / "b", arms={"mirrored/x": 0.1})
    with pytest.raises(TfdistError, match=r"no arm was measured in both .*b has mirrored/x"):
        compare_folders(base, new)
    with pytest.raises(TfdistError, match="the same folder"):
        compare_folders(base, tmp_path / "b" / ".." / "a")


def test_a_change_of_all_arms_is_said_to_be_invisible(tmp_path: Path) -> None:
    compared = compare_folders(save_bench(tmp_path / "a"), save_bench(tmp_path / "b", seed=1))
    (text,) = (text for text in sentences(compared) if "that all arms share" in text)
    assert re.match(r"A change of less than about \d+% that all arms share may be one of the machine's speed", text)


def test_everything_is_in_the_json(tmp_path: Path) -> None:
    base = save_bench(tmp_path / "a")
    content = compare_folders(base, save_bench(tmp_path / "b", {"mirrored/auto": 1.3}, seed=1)).to_json(0.05)
    assert content["too_slow"] == ["mirrored/auto"]
    arm = content["arms"][1]
    assert arm["low"] < arm["ratio"] < arm["high"] < 0.95
    assert arm["images_per_s_ratio"] == pytest.approx(arm["new_images_per_s"] / arm["base_images_per_s"])
    assert (arm["anchored"], arm["too_slow"], arm["verdict"]) == (True, True, "slower")
