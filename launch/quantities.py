"""Sizes on the command line, in the notation of the NCCL tests: K, M and G are 2 to the 10, 20 and 30. Pure."""

import re

from tfdist.launch.errors import TfdistError

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_seconds(text: str, flag: str, least: float | None = None) -> float:
    """The seconds of a duration, positive ones, or `least` and more.

    Raises:
        TfdistError: another notation, or too few.
    """
    match = re.fullmatch(r"(-?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d|)", text.strip().casefold())
    if match is None:
        raise TfdistError(f"{flag} {text}: give a duration, as 5s, 10m, 1h or 30d; without a unit it is in seconds")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds <= 0 if least is None else seconds < least:
        raise TfdistError(f"{flag} {text}: must be {'positive' if least is None else f'at least {least:g}'}")
    return seconds


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 64
"""Sizes in a sweep; more are a typo."""


def parse_sizes(text: str, flag: str = "--sizes") -> tuple[int, ...]:
    """Bytes of `1K:256M` (each size twice the one before), `1K:256M:4` (4 times) or `1K,64K,1M`.

    Raises:
        TfdistError: another notation, or a range without sizes or with too many.
    """
    if ":" not in text:
        return tuple(parse_size(part, flag) for part in text.split(","))
    first, _, rest = text.partition(":")
    last, _, factor_text = rest.partition(":")
    factor = int(factor_text or 2) if re.fullmatch(r"\d*", factor_text) else 0
    if factor < 2:
        raise TfdistError(f"{flag} {text}: the factor is {factor_text!r}; make it an integer of at least 2")
    size, end = parse_size(first, flag), parse_size(last, flag)
    if end < size:
        raise TfdistError(f"{flag} {text}: ends below its first size; write it as {last}:{first}")
    sizes = [size]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    if len(sizes) > _MOST:
        raise TfdistError(f"{flag} {text}: {len(sizes)} sizes; use at most {_MOST}")
    return tuple(sizes)


def parse_size(text: str, flag: str, least: int = 1) -> int:
    """Bytes of `4096`, `4K`, `4M` or `1G`.

    Raises:
        TfdistError: another notation, or fewer than `least`.
    """
    match = re.fullmatch(r"(\d+)([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise TfdistError(f"{flag} {text}: give bytes, for example 1K, 64K or 256M")
    size = int(match[1]) * _UNITS[match[2]]
    if not least <= size <= 1 << 40:
        raise TfdistError(f"{flag} {text}: must be from {least} byte to 1024G")
    return size


def size_text(size: int) -> str:
    """`1K`, `256M`, or the number of bytes if it is no multiple."""
    for unit, factor in reversed(_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
