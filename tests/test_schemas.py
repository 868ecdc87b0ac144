"""What is written fits docs/schemas/, which are those of the types."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from lab.schemas import FOLDER, schemas
from tfdist.bench.report.build import make_report
from tfdist.bench.report.write import write_page

RESULTS = Path(__file__).parents[1] / "bench_results"
BENCHES = sorted(path.parent for path in RESULTS.glob("*/bench.json"))


def check(name, value):
    jsonschema.Draft202012Validator(schemas()[f"{name}.schema.json"]).validate(value)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_published_schemas_are_those_of_the_types():
    """If not: python -m lab.schemas."""
    assert {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")} == schemas()


@pytest.mark.parametrize("name", list(schemas()))
def test_they_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(schemas()[name])


@pytest.mark.parametrize("folder", BENCHES, ids=lambda path: path.name)
def test_committed_benches_fit(folder):
    for line in lines(folder / "turns.jsonl")[:20]:
        check("turns", line)
    for line in lines(folder / "records.jsonl")[:5]:
        check("records", line)


@pytest.mark.slow
@pytest.mark.usefixtures("no_charts")
def test_a_report_fits_and_each_of_its_fields_is_described(tmp_path):
    write_page(make_report(BENCHES[-1:]), tmp_path)
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    check("report", written)
    assert written.keys() == schemas()["report.schema.json"]["properties"].keys()


def test_other_values_do_not_fit():
    line = lines(BENCHES[-1] / "turns.jsonl")[0]
    for wrong in ({"format": 99}, {"round": "x"}, {"windows": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check("turns", {**line, **wrong})


@pytest.mark.slow
def test_what_a_launch_writes_fits(tmp_path):
    words = ["--preset", "smoke", "--model", "tiny", "--strategy", "multiworker", "--workers", "2", "--steps", "20"]
    command = [
        sys.executable,
        "-m",
        "tfdist.cli",
        "launch",
        *words,
        "--checkpoint-every",
        "3",
        "--runs-dir",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (run,) = tmp_path.iterdir()
    check("outcome", json.loads((run / "outcome.json").read_text()))
    check("records", json.loads((run / "records.jsonl").read_text()))
    events = lines(run / "events.jsonl")
    assert {"Started", "Event", "Exited"} <= {event["kind"] for event in events}
    for event in events:
        check("events", event)


@pytest.mark.slow
@pytest.mark.thorough
def test_what_a_bench_writes_fits(tmp_path):
    words = [
        "--suite",
        "smoke",
        "--arm",
        "one-device",
        "--arm",
        "mirrored/auto",
        "--rounds",
        "2",
        "--turn",
        "0.5s",
        "--json",
    ]
    command = [sys.executable, "-m", "tfdist.cli", "bench", *words, "--out", str(tmp_path / "bench")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    check("report", json.loads((tmp_path / "bench" / "report.json").read_text()))
    printed = json.loads(done.stdout.splitlines()[-1])
    check("report", {key: value for key, value in printed.items() if key not in ("exit_code", "folder")})
    for name in ("turns", "records"):
        written = lines(tmp_path / "bench" / f"{name}.jsonl")
        assert written
        for line in written:
            check(name, line)
