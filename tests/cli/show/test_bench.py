"""What a bench prints before it starts."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tfdist.bench.options import BenchOptions, ScalingSweep
from tfdist.bench.session import prepare
from tfdist.cli.show.bench import announce
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, Machines, local_machines
from tfdist.strategies.options import StrategyName

TWO_CORES, EIGHT_GPUS = Machine((0, 1), ()), Machine(tuple(range(16)), tuple("ABCDEFGH"))
ROUGH = r"; a rough answer in [23] min: --suite quick"


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines_of(options: BenchOptions, machines: Machines) -> list[str]:
    stream = StringIO()
    announce(prepare(options, machines), stream)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("machine", "suite"), [(TWO_CORES, "cpu: 10 arms x 12"), (EIGHT_GPUS, "gpu: 60 arms x 12")], ids=["cpu", "gpu"]
)
def test_the_first_line_of_a_default_bench_says_how_long_it_takes_and_how_to_know_sooner(
    machine: Machine, suite: str
) -> None:
    first, _, size, *_ = lines_of(BenchOptions(), local_machines(machine))
    assert re.fullmatch(f"suite {suite} rounds of 2.5 s, weak scaling, seed 0, at most about [0-9 hmin]+{ROUGH}", first)
    assert "about" not in size


def test_a_program_of_the_users_own_is_known_sooner_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tfdist.measure")
    program = BenchOptions(program=("python", "train.py"), out=Path("out"), command="tfdist bench")
    first, *_ = lines_of(program, local_machines(TWO_CORES))
    assert re.search(r", at most about \d+ min; a rough answer in \d min: --suite quick$", first)


CHOSEN: dict[str, dict[str, Any]] = {
    "suite": {"suite": "cpu"},
    "rounds": {"rounds": 20},
    "arms": {"patterns": ("mirrored/*", "one-device")},
    "time": {"budget_s": 3600.0},
    "precision": {"precision": 0.05},
    "explained": {"explain": True},
    "sweep": {"sweep": ScalingSweep(StrategyName.MULTI_WORKER, (1, 2, 4, 8, 16))},
}


@pytest.mark.parametrize("change", CHOSEN.values(), ids=CHOSEN)
def test_who_chose_the_suite_or_its_length_is_told_the_time_only(change: dict[str, Any]) -> None:
    text = "\n".join(lines_of(replace(BenchOptions(), **change), local_machines(TWO_CORES)))
    assert "--suite quick" not in text
    assert re.search(r" of the processes, (at most )?about \d", text)


def test_what_the_quick_suite_does_not_compare_or_answer_sooner_is_measured_without_it() -> None:
    one_gpu = local_machines(Machine((0, 1), ("A",)))
    hosts = {Host(name, address): TWO_CORES for name, address in (("h1", "10.0.0.1"), ("h2", "10.0.0.2"))}
    for machines in (one_gpu, hosts):
        assert "--suite quick" not in "\n".join(lines_of(BenchOptions(), machines))
    session = replace(prepare(BenchOptions(), local_machines(TWO_CORES)), quick_s=10_000.0)
    stream = StringIO()
    announce(session, stream)
    assert "--suite quick" not in stream.getvalue()
