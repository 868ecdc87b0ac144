import pytest

from tests.bench.collectives.lines import line, sweep
from tfdist.bench.report.collectives_page import write_collectives
from tfdist.bench.report.sections.collectives import collectives_section
from tfdist.launch.errors import TfdistError

SIZES = (1 << 10, 1 << 20, 1 << 26)
LINES = [
    line(arm, size, seconds=1e-4 + size / rate, round=number)
    for number in (1, 2, 3)
    for arm, rate in (("multiworker/ring", 1e9), ("multiworker/auto", 2e9))
    for size in SIZES
]
LISTS = [line(size=14_019_488, tensors=158, pack=pack, seconds=s, round=n)
         for n in (1, 2, 3) for pack, s in ((None, 0.02), (1 << 20, 0.015))]  # fmt: skip


def test_the_answer_names_the_highest_bandwidth_the_latency_and_the_checks():
    found = collectives_section(sweep(*LINES))
    assert found.answer[0].startswith(
        "The highest bus bandwidth is 1.99 GB/s (95% interval 1.99 to 1.99): multiworker/auto at 64M."
    )
    assert "The shortest operation takes 101 us" in found.answer[0]
    assert found.answer[-1] == "All results were right: 18 checks."


def test_the_gradients_of_a_model_have_a_sentence_with_the_fastest_packs():
    found = collectives_section(sweep(*LISTS))
    assert "All 158 gradients of the model, 14.02 MB, take 15.0 ms" in found.answer[0]
    assert "packs of 1M exchange the gradients fastest, 1.33 times" in found.answer[1]
    assert found.charts == ()


def test_wrong_elements_are_in_the_answer():
    found = collectives_section(sweep(*LINES, line(wrong=7, round=4)))
    assert "**7 wrong elements**: multiworker/ring at 1M. Do not train with this." in found.answer


def test_charts_hold_every_size_with_its_interval():
    busbw, time = collectives_section(sweep(*LINES)).charts
    assert (busbw.name, time.name) == ("collectives_busbw", "collectives_time")
    assert list(busbw.data["size_bytes"]) == [*SIZES, *SIZES]
    assert "multiworker/ring 0.0101 at 1K to 0.999 at 64M" in busbw.alt


def test_axes_are_logarithmic():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    collectives_section(sweep(*LINES)).charts[0].paint(axes)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_legend_handles_labels()[1] == ["multiworker/ring", "multiworker/auto"]


@pytest.mark.slow
def test_every_format_is_written(tmp_path):
    page = write_collectives(sweep(*LINES, *LISTS, not_measured={"multiworker/nccl": "it needs GPUs"}), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert page == tmp_path / "report.html"
    assert {"report.html", "report.md", "report.json", "collectives.csv", "collectives_busbw.png"} < names
    text = (tmp_path / "report.md").read_text()
    assert "| arm | ranks | size (B) | count (elements) | type | redop |" in text
    assert "Not measured: multiworker/nccl: it needs GPUs" in text
    assert "**loopback**" in text


def test_an_empty_sweep_has_no_section_and_no_report(tmp_path):
    assert collectives_section(sweep()) is None
    with pytest.raises(TfdistError, match="no measurement"):
        write_collectives(sweep(), tmp_path)
