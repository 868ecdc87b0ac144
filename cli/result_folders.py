"""The folders that a user names, as `bench_results/*`: those with records, and the others."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from tfdist.bench.reading import holds_records


def with_records(folders: Sequence[Path]) -> tuple[Sequence[Path], list[Path]]:
    """Those to read, and the existing files and folders without records; all are to be read if none has any."""
    empty = [folder for folder in folders if folder.exists() and not holds_records(folder)]
    return [folder for folder in folders if folder not in empty] or folders, empty


def list_skipped(empty: Iterable[Path]) -> None:
    """Name them on stderr."""
    for folder in empty:
        typer.echo(f"tfdist: skipped {folder}: no records in it", err=True)
