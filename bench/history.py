"""What this user's benches have found, for later ones: CSV files in $XDG_STATE_HOME/tfdist, or ~/.local/state/tfdist.

Each has a line for each finding, which any number of benches may append at the same time.
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfdist.launch.json_files import open_append, read_bytes


def history_file(name: str) -> Path:
    """The path of a file; of a user without a home, as if that were /."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path("/", os.path.expanduser(state).removeprefix("~"), "tfdist", name)  # noqa: PTH111 - it raises nothing without a home


def append_rows(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Append lines, all in one write; the first ones follow the names of the columns.

    Raises:
        OSError: the file cannot be written.
    """
    path, text = history_file(name), io.StringIO(newline="")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_append(path) as file:
        writer = csv.writer(text)
        if not file.seek(0, os.SEEK_END):
            writer.writerow(columns)
        else:
            file.seek(-1, os.SEEK_END)
            text.write("" if file.read(1) == b"\n" else "\n")  # a line that a full disk cut
        writer.writerows(rows)
        file.write(text.getvalue().encode(errors="backslashreplace"))


def read_rows(name: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The complete lines, by column, in order; none if the file is missing, or is not what `append_rows` writes."""
    try:
        lines = list(csv.DictReader(io.StringIO(read_bytes(history_file(name)).decode(), newline="")))
    except (OSError, ValueError, csv.Error):
        return []
    return [line for line in lines if line.keys() == {*columns} and None not in line.values()]
