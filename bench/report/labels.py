"""Short names of folders in a report over several. Pure."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

_NAME = re.compile(r"(?P<day>\d{8})T(?P<hour>\d\d)(?P<minute>\d\d)\d\dZ-(?P<suite>.+)")
"""Names of folders of `tfdist bench`: 20260101T120000Z-cpu."""
_FORMS: Sequence[Callable[[re.Match[str]], str]] = (
    lambda name: name["suite"],
    lambda name: f"{name['suite']} {_day(name['day'])}",
    lambda name: f"{name['suite']} {name['hour']}h{name['minute']}",
    lambda name: f"{name['suite']} {_day(name['day'])} {name['hour']}h{name['minute']}",
)
"""The shortest first."""


def labels_of(roots: Sequence[Path]) -> list[str]:
    """Unique labels: of the folders of benches the suite, then its day or time (UTC), as far as they differ.

    Any other folder is named as it is; if two names are equal, all by their paths below the common parent.
    """
    names = [root.resolve().name for root in roots]
    found = [_NAME.fullmatch(name) for name in names]
    for form in _FORMS:
        labels = [form(match) if match else name for match, name in zip(found, names, strict=True)]
        if len(set(labels)) == len(labels):
            return labels
    if len(set(names)) == len(names):
        return names
    paths = [str(root.resolve()) for root in roots]
    common = os.path.commonpath(paths)
    return [os.path.relpath(path, common) for path in paths]


def _day(digits: str) -> str:
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
