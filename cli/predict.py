"""`tfdist predict`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfdist.bench.compare.gate import parse_share
from tfdist.bench.predict.prediction import PredictionOptions
from tfdist.bench.predict.prediction import predict as predict_folder
from tfdist.bench.predict.section import REFERENCES, prediction_section
from tfdist.bench.report.section import Page
from tfdist.bench.report.write import write_page
from tfdist.cli.options import Json, gather
from tfdist.cli.result_folders import check_out, list_skipped
from tfdist.cli.run_argument import argument, option_rows
from tfdist.cli.show.rows import PlainConsole, show_rows
from tfdist.jobs.options import OUTPUT
from tfdist.launch.json_files import dumps
from tfdist.launch.quantities import parse_bandwidth, parse_counts, parse_seconds, parse_size

OPTIONS = option_rows(
    OUTPUT,
    collectives=(Path, "Folder of a 'tfdist collectives' between the same hosts; multiworker arms need it."),
    devices=(str, "Numbers of devices, as 1,2,4 or 1,2,4,...,512 (default).", {"variable": "TFDIST_PREDICT_DEVICES"}),
    bandwidth=(str, "Bandwidth of a TCP stream between two hosts, as 10Gbit or 1.2GB/s. Default: that of the sweep."),
    latency=(str, "One-way latency between two hosts, as 50us. Default: that of the sweep."),
    worth=(str, "A device pays if it adds this share of what one device alone does, as 50% or 0.5. Default: 50%."),
    gradient_bytes=(str, "Bytes of the gradients of your own program in float32, as 14M (M: 1024 x 1024)."),
    arm=(list[str], "Only the arms that match, as 'multiworker/*'; can be repeated."),
    out=(Path, "Write a report into this folder: report.html with plots, report.md, prediction.csv."),
    verbose=(bool, "Also the sources of published figures in the plots.", {"short": ("-v",)}),
)


@gather("given", OPTIONS)
def predict(
    bench: Annotated[Path, argument("BENCH", "Folder of a bench.")], given: Mapping[str, Any], json: Json = False
) -> None:
    """Predict images/s on more devices or another network. From a bench and a sweep of all-reduces.

    A synchronous step is the compute time of the measured arms, the wait for the slowest of n devices by their measured
    spread, a ring all-reduce with the latency and bandwidth that fit the sweep, and a rest that grows with the devices
    as over the measured numbers of them. Workers of parameter servers queue for them. Beyond 8 times what was measured
    it is an extrapolation, and is called so. Measurements of one host are not used for several. Nothing is run.

    \b
    Examples:
      tfdist collectives --hosts h1,h2 --sizes 1K:64M --out sweep
      tfdist bench --hosts h1,h2 --suite hosts --out two-hosts
      tfdist predict two-hosts --collectives sweep --devices 1,2,4,...,512
      tfdist predict two-hosts --collectives sweep --bandwidth 10Gbit --latency 50us --out prediction
      tfdist predict bench_results/20260101T120000Z-cpu --collectives sweep --arm 'parameter-server/*' --devices 1,2,4,8
    """
    options = PredictionOptions(
        devices=parse_counts(given["devices"] or "1,2,4,...,512", "--devices"),
        bandwidth=parse_bandwidth(given["bandwidth"], "--bandwidth") if given["bandwidth"] else None,
        latency_s=parse_seconds(given["latency"], "--latency", 0) if given["latency"] else None,
        worth=parse_share(given["worth"] or "50%", "--worth"),
        gradient_bytes=parse_size(given["gradient_bytes"], "--gradient-bytes") if given["gradient_bytes"] else None,
        arms=tuple(given["arm"] or ()),
    )
    check_out(given["out"], filter(None, (bench, given["collectives"])))
    prediction = predict_folder(bench, given["collectives"], options)
    list_skipped((), prediction.skipped)
    section = prediction_section(prediction)
    page = Page("Prediction", section.answer, (section,), commands=prediction.commands)
    path = write_page(page, given["out"]) if given["out"] else None
    console = PlainConsole(sys.stderr if json else sys.stdout)
    show_rows(console, section.tables[0].rows, ("arm", "devices", "images/s", "efficiency", "note"))
    for text in section.answer:
        console.print(text)
    for note in section.notes[: None if given["verbose"] else -len(REFERENCES)]:
        console.print(note, style="dim")
    if path:
        typer.echo(f"\nreport: {path}", err=json)
    if json:
        typer.echo(dumps(prediction.to_json()))
