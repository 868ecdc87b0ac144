"""Durations on the command line: 5s, 10m, 1h, 30d, or a number of seconds."""

import re

from tfdist.launch.errors import TfdistError

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_seconds(text: str | None, flag: str) -> float | None:
    """The seconds of an option's value; None if it was not given.

    Raises:
        TfdistError: it is no duration, or not positive.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(-?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d|)", text.strip().casefold())
    if match is None:
        raise TfdistError(f"{flag} {text}: give a duration, as 5s, 10m, 1h or 30d; without a unit it is in seconds")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds <= 0:
        raise TfdistError(f"{flag} {text}: must be positive")
    return seconds
