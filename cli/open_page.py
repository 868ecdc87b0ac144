"""Opens a page in the browser."""

import webbrowser
from pathlib import Path

import typer


def open_page(path: Path) -> None:
    """Open a file in the browser of this machine (BROWSER, or the system's), or say that there is none."""
    if not webbrowser.open(path.resolve().as_uri()):
        typer.echo(f"tfdist: no browser on this machine: copy {path} to one that has, or set BROWSER", err=True)
