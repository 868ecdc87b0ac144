"""The command line of `tfdist collectives`; nothing is started."""

import io
import json

import pytest

from tests.bench.collectives.lines import line, sweep
from tests.cli.screens import ARMS, HOSTS, Screen, broken
from tfdist.bench.collectives.results import SweepFolder
from tfdist.cli.collectives import show
from tfdist.cli.command import run
from tfdist.launch.text import has_controls

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "it's; new"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--op", "allreduce"],
            "--op allreduce: did you mean all-reduce? Choose from all-reduce, all-gather, broadcast",
        ),
        (["--sizes", "1K:x"], "--sizes x: give bytes, for example 1K, 64K or 256M"),
        (["--workers", "1"], "--workers 1: give integers of at least 2 in ascending order, as 2,4,8 or 2,4,8,...,512"),
        (["--devices", "two"], "--devices two: give integers of at least 2"),
        (["--communication", "ring,nccI"], "--communication nccI: did you mean nccl? Choose from auto, ring, nccl"),
        (
            ["--cross-device", "ring"],
            "--cross-device ring: choose from auto, nccl, hierarchical-copy, reduction-to-one",
        ),
        (["--gradient-dtype", "float64"], "--gradient-dtype float64: did you mean float16? Choose"),
        (["--bytes-per-pack", "1M"], "--bytes-per-pack: has no effect on single tensors; add --model-gradients"),
        (["--turn", "0"], "--turn 0: must be positive"),
        (["--turn", "15m"], "--turn 15 min: must be shorter than 10 min"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--incarnations", "0"], "--incarnations 0: must be at least 1"),
        (["--ssh", "s"], "--ssh s has no effect without --hosts"),
        (["--set", "packs=2"], "--set packs=2: has no effect with tfdist collectives; omit it"),
    ],
)
def test_a_wrong_option_is_one_sentence_with_its_value(arguments, sentence, capsys, folder):
    assert run(["collectives", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"tfdist: {sentence}")
    assert list(folder.iterdir()) == []


def test_tf_config_is_refused(capsys, monkeypatch, folder):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert run(["collectives", "--dry-run"]) == 2
    assert "TF_CONFIG is already set" in capsys.readouterr().err


def test_a_dry_run_shows_turns_sizes_and_refusals_and_writes_nothing(capsys, monkeypatch, folder):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    arguments = [
        "--sizes",
        "1K:64K:8",
        "--rounds",
        "2",
        "--op",
        "all-gather",
        "--cross-device",
        "auto,nccl",
        "--workers",
        "2",
    ]
    assert run(["collectives", "--dry-run", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all-gather of 1K, 8K, 64K, float32"
    assert lines[1] == "3 arms x 2 rounds of 2 s in 2 starts, seed 0"
    assert any(line.startswith("refused: mirrored/nccl: ") for line in lines)
    assert len([line for line in lines if ". round " in line]) == 6
    assert list(folder.iterdir()) == []


def test_a_dry_run_as_json_has_the_specs(capsys, monkeypatch, folder):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    arguments = ["--model-gradients", "--bytes-per-pack", "1M,4M", "--workers", "2", "--rounds", "1", "--seed", "7"]
    assert run(["collectives", "--dry-run", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"]["multiworker/ring"]["pack_sizes"] == [0, 1 << 20, 4 << 20]
    assert found["arms"]["multiworker/ring"]["sizes"] == []
    assert sorted(turn["arm"] for turn in found["plan"]) == ["multiworker/auto", "multiworker/ring"]
    assert [sorted(order) for order in found["starts"]] == [["multiworker/auto", "multiworker/ring"]]


def test_the_help_has_examples(capsys):
    assert run(["collectives", "--help"]) == 0
    text = capsys.readouterr().out
    assert "tfdist collectives --model-gradients --bytes-per-pack 512K,2M,8M" in text
    assert "--sizes" in text


def test_a_bench_refuses_a_folder_without_collectives(capsys, folder):
    assert run(["bench", "--collectives", "nowhere", "--dry-run"]) == 2
    assert "nowhere has no readable collectives.json" in capsys.readouterr().err


@pytest.fixture
def measured(folder):
    """A folder of an earlier measurement, with wrong results of one arm."""
    files = SweepFolder(folder / "done")
    found = sweep(
        *(
            line("ring", size, size / 1e9 * (2 if number == 2 else 1), number, incarnation=1)
            for number in (1, 2, 3)
            for size in (1 << 10, 1 << 20)
        ),
        *(line("auto", 1 << 20, 0.01, number, wrong=2, incarnation=1) for number in (1, 2, 3)),
        not_measured={"nccl": "it needs GPUs"},
        same_arms=(("ring", "auto"),),
    )
    files.save_header(found.header)
    for each in found.lines:
        files.append(each)
    return files.path


@pytest.mark.slow
def test_a_report_is_written_again_from_the_lines_alone(measured, capsys):
    assert run(["report", "done"]) == 0
    out = capsys.readouterr().out
    assert "ring: all-reduce, 2 ranks on 1 host, 3 rounds in 1 start" in out
    assert "warning: ring, round 2: 2.00 times as long as its other rounds (median over sizes)" in out
    assert "Noise (A/A): ring takes 0.10 times" in out
    assert "wrong: auto at 1M: 6 wrong elements; do not train with it" in out
    assert "not measured: nccl: it needs GPUs" in out
    assert out.splitlines()[-1] == "report: done/report.html"
    report = (measured / "report.md").read_text()
    assert "- **disturbed-turn**: ring, round 2: 2.00 times as long as its other rounds" in report
    assert "- **few-starts**: Only 1 start of each arm" in report
    assert "Noise (A/A): ring takes 0.10 times" in report


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_whole_names_and_figures(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    arms = [arm for arm in ARMS if len(arm) < width]
    lines = [line(arm, 1 << 20, 0.01, number, wrong=1) for arm in arms for number in (1, 2, 3)]
    screen = Screen()
    show(sweep(*lines, not_measured={f"mirrored/{HOSTS[0]}": "it needs GPUs"}, same_arms=(tuple(arms[:2]),)), screen)
    assert broken([*arms, f"mirrored/{HOSTS[0]}"], screen.getvalue(), width) == []
    assert screen.getvalue().count("1048576") == len(arms)


def test_a_report_as_json_has_exact_values(measured, capsys):
    assert run(["report", "done", "--out", "other", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [(row["arm"], row["size_bytes"], row["wrong"]) for row in found["rows"]] == [
        ("ring", 1 << 10, 0), ("ring", 1 << 20, 0), ("auto", 1 << 20, 6),
    ]  # fmt: skip
    assert found["rows"][0]["starts"] == 1
    assert (len(found["noise"]), len(found["disturbed"])) == (1, 1)
    assert found["report"] == "other/report.html"
    assert "busbw" in captured.err


def test_texts_of_a_folder_are_printed_without_controls():
    evil = "ring\x1b]0;x\x07\x9b\u202e"
    found = sweep(*(line(evil, 1 << 10, 0.1, number, wrong=1) for number in (1, 2, 3)), not_measured={evil: evil})
    out = io.StringIO()
    show(found, out)
    assert "not measured: ring: ring" in out.getvalue()
    assert not has_controls(out.getvalue())
