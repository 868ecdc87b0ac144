"""The GitHub action: what its steps get and give, the verdict, and the job summary."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from action.measure import TITLES, WIDTH, bound_of, code, environment, fenced, picture, summary, table, verdict_of
from tfdist.bench.compare.gate import parse_share

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


def row(low, ratio, high, *, arm="one-device", too_slow=False):
    if low is None or low <= 1 <= high:
        verdict = "cannot tell"
    else:
        verdict = "faster" if low > 1 else "slower"
    return {"arm": arm, "ratio": ratio, "low": low, "high": high, "verdict": verdict, "too_slow": too_slow}


SLOW = row(0.90, 0.92, 0.94, too_slow=True)
UNSURE = row(0.93, 0.97, 1.01)
EQUAL = row(0.98, 1.0, 1.02)
UNKNOWN = row(None, 0.7, None)


def test_no_text_of_a_workflow_becomes_part_of_a_script():
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert scripts
    assert not any("${{" in script for script in scripts)


def test_every_input_is_used_and_every_expression_has_a_source():
    texts = [*map(str, STEPS), *(output["value"] for output in ACTION["outputs"].values())]
    words = {word for text in texts for word in re.findall(r"\b(?:inputs|steps)\.[a-z.-]+", text)}
    inputs = {word.removeprefix("inputs.") for word in words if word.startswith("inputs.")}
    assert inputs == set(ACTION["inputs"])
    outputs = {word for word in words if word.startswith("steps.")}
    assert outputs == {f"steps.measure.outputs.{name}" for name in ACTION["outputs"]}


def test_the_report_is_uploaded_whatever_the_verdict():
    *_, upload = STEPS
    assert upload["uses"].startswith("actions/upload-artifact@v")
    assert upload["if"].startswith("always() && ")


def test_the_verdicts_are_those_that_the_output_names():
    named = ACTION["outputs"]["verdict"]["description"]
    assert sorted(re.split(r", | or ", named)) == sorted(TITLES)


@pytest.mark.parametrize(
    ("code", "rows", "bound", "verdict"),
    [
        (1, [EQUAL, SLOW], 0.05, "slower"),
        (0, [row(0.90, 0.92, 0.96)], 0, "slower"),
        (1, [EQUAL], 0.05, "failed"),
        (2, [], 0, "failed"),
        (130, [EQUAL], 0.05, "failed"),
        (3, [UNKNOWN], 0.05, "nothing-compared"),
        (0, [UNKNOWN], 0, "nothing-compared"),
        (0, [EQUAL, UNSURE], 0.05, "inconclusive"),
        (0, [EQUAL, UNKNOWN], 0.05, "inconclusive"),
        (0, [EQUAL], 0, "inconclusive"),
        (0, [EQUAL, row(1.1, 1.2, 1.3)], 0.05, "not-slower"),
        (3, [EQUAL], 0.05, "inconclusive"),  # another arm was not compared
    ],
)
def test_a_verdict_is_not_better_than_the_figures(code, rows, bound, verdict):
    assert verdict_of(code, rows, bound) == verdict


@pytest.mark.parametrize("text", ["5%", "0.05", " 12.5 % ", ".5", "0%"])
def test_the_bound_is_read_as_tfdist_reads_it(text):
    assert bound_of(text) == pytest.approx(parse_share(text, "--fail-slower"))


def test_a_row_without_an_interval_and_an_odd_name_stay_a_table():
    lines = list(table([SLOW, {**UNKNOWN, "arm": "a|b"}]))
    assert lines[2] == "| <code>one-device</code> | 0.920 | 0.900 to 0.940 | slower than the bound |"
    assert lines[3] == "| <code>a&#124;b</code> | 0.700 | - | cannot tell |"


@given(
    st.lists(st.tuples(*[st.floats(0.01, 20)] * 3).map(sorted), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_a_picture_has_each_ratio_within_its_interval(figures, bound):
    rows = [row(*each, arm=f"arm {index}") for index, each in enumerate(figures)]
    *lines, scale = picture(rows, bound)
    for line in lines:
        drawn = line[len("arm 0  ") :]
        assert len(drawn) <= WIDTH
        assert drawn.count("o") == 1
        dashes = [index for index, mark in enumerate(drawn) if mark == "-"]
        if dashes:  # up to three marks may cover its ends
            assert dashes[0] - 3 <= drawn.index("o") <= dashes[-1] + 3
            assert set(drawn[: dashes[0]] + drawn[dashes[-1] + 1 :]) <= set(" |:o")
        assert bound or ":" not in drawn
    low, high = map(float, scale.split())
    assert low < min(min(each) for each in figures)
    assert high > max(max(each) for each in figures)


def test_a_summary_has_the_ratios_the_report_without_pictures_and_where_they_are(tmp_path):
    (tmp_path / "report.md").write_text("# Bench `cpu`\n\n![Images/s](images_per_s.png)\n\n## Costs\n")
    text = summary("slower", {"versions": [SLOW, UNKNOWN]}, 0.05, tmp_path, "bench")
    assert text.startswith("### tfdist: slower than the base\n\n| arm |")
    assert re.search(r"(?m)^one-device +-+o-+:? +:? *\|", text)
    assert "![" not in text
    assert "## Costs" in text
    assert text.endswith("artifact <code>bench</code>\n")
    assert "artifact" not in summary("slower", {"versions": [SLOW]}, 0.05, tmp_path, "")


def test_a_summary_of_a_refused_bench_has_the_sentence(tmp_path):
    text = summary("failed", {"reason": "--against x: no"}, 0.0, tmp_path / "bench", "bench")
    assert text == "### tfdist: the bench failed\n\n```\n--against x: no\n```\n"


TEXTS = st.text() | st.lists(st.sampled_from(["`", "```", "~~~", "\n", "<", "@a", "|", "</code>", "www.a.b"])).map(
    "".join
)


@given(TEXTS)
def test_text_of_others_stays_a_block_of_code(text):
    fence, *lines, end, after = "\n".join(fenced([text])).split("\n")
    assert (fence, after) == (end, "")
    assert set(fence) == {"`"}
    assert fence not in "\n".join(lines)
    assert "\n".join(lines) == text


@given(TEXTS)
def test_text_of_others_stays_one_piece_of_code_in_a_line(text):
    shown = code(text)
    inner = shown.removeprefix("<code>").removesuffix("</code>")
    assert re.fullmatch(r"([0-9A-Za-z /-]|&#\d+;)*", inner)
    assert re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), inner) == text


def test_a_program_gets_what_it_needs_and_no_secret():
    kept = {
        "PATH": "p",
        "HOME": "h",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "1",
        "TFDIST_SUITE": "cpu",
    }
    kept |= {
        "PYTHONPATH": ".",
        "LD_LIBRARY_PATH": "l",
        "TF_XLA_FLAGS": "--x",
        "NO_PROXY": "a,b",
        "https_proxy": "http://p:1",
    }
    secret = {
        "TF_TOKEN_a": "1",
        "TF_VAR_x": "1",
        "TFDIST_BARRIER_SECRET": "1",
        "KERAS_API_KEY": "1",
        "HTTPS_PROXY": "http://u:p@h",
    }
    others = {
        "GITHUB_ENV": "f",
        "ACTIONS_RUNTIME_TOKEN": "t",
        "INPUT_COMMAND": "c",
        "RUNNER_TEMP": "r",
        "AWS_PROFILE": "a",
        "MYPATH": "m",
    }
    assert environment("", {**kept, **secret, **others}) == kept
    assert environment(" AWS_PROFILE\nKERAS_API_KEY  NONE", {**kept, **secret, **others}) == {
        **kept, "AWS_PROFILE": "a", "KERAS_API_KEY": "1",
    }  # fmt: skip


def test_no_step_starts_a_module_with_the_folders_of_the_workspace_in_its_path():
    for script in (step["run"] for step in STEPS if "run" in step):
        assert re.search(r'python (-I "\$GITHUB_ACTION_PATH/|-m pip install \.$)', script)
        assert "-I" in script or script.startswith('cd "$GITHUB_ACTION_PATH" && PYTHONPATH= ')
