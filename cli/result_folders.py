"""What commands about results share: the folders that a user names, as `bench_results/*`, and --export."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tfdist.bench.export import ExportFormat
from tfdist.bench.reading import holds_records
from tfdist.cli.options import option
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import plain

Export = Annotated[
    ExportFormat | None,
    option("--export", "Print the figures alone to stdout as a dashboard reads them; json: as --json."),
]


def export_form(export: ExportFormat | None, json: bool) -> ExportFormat | None:
    """What --export and --json ask for together; None: nothing.

    Raises:
        TfdistError: two different outputs.
    """
    if json and export not in (None, ExportFormat.JSON):
        raise TfdistError(f"--export {export} --json: stdout has one of them; omit the other")
    return export or (ExportFormat.JSON if json else None)


def check_out(out: Path | None, folders: Iterable[Path]) -> None:
    """Refuse the folder of one bench for a page about several, or about something else.

    Raises:
        TfdistError: it is one of `folders`.
    """
    if out and out.resolve() in {folder.resolve() for folder in folders}:
        raise TfdistError(f"--out {out}: it would replace the report of that folder alone; choose another --out")


def with_records(folders: Sequence[Path]) -> tuple[Sequence[Path], list[Path]]:
    """The folders to read, and the existing files and folders without records; all are to be read if none has any."""
    folders = list({folder.resolve(): folder for folder in folders}.values())  # overlapping patterns name one twice
    empty = [folder for folder in folders if folder.exists() and not holds_records(folder)]
    return [folder for folder in folders if folder not in empty] or folders, empty


def list_skipped(empty: Iterable[Path], unreadable: Iterable[str]) -> None:
    """Name folders without records, and records that could not be read, on stderr."""
    for folder in empty:
        typer.echo(f"tfdist: skipped {folder}: no records in it", err=True)
    for record in unreadable:
        typer.echo(plain(f"tfdist: skipped {record}"), err=True)
