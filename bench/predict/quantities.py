"""Bandwidths, latencies, sizes and lists of devices on the command line."""

import re
from collections.abc import Iterator

from tfdist.launch.errors import TfdistError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_MOST_DEVICES = 10_000


def parse_bandwidth(text: str, flag: str) -> float:
    """Bytes/s of `10Gbit`, `10 Gbit/s`, `10Gbps` (bits), `1.2GB/s` or `1.2GBps` (bytes); prefixes are decimal.

    Raises:
        TfdistError: anything else; a number without a unit, too.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([kmgt]?)(bit|b)(/s|ps|)", text.strip(), re.IGNORECASE)
    value = float(match[1]) * _PREFIXES[match[2].casefold()] / (1 if match[3] == "B" else 8) if match else 0.0
    if value <= 0:
        raise TfdistError(f"{flag} {text}: give a bandwidth, as 10Gbit, 100Mbit/s or 1.2GB/s")
    return value


def parse_latency(text: str, flag: str) -> float:
    """Seconds of `50us`, `0.2ms` or `1s`.

    Raises:
        TfdistError: anything else; a number without a unit, too.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*(ns|[uµμ]s|ms|s)", text.strip().casefold())
    if match is None:
        raise TfdistError(f"{flag} {text}: give a one-way latency, as 50us or 0.2ms")
    return float(match[1]) * _SECONDS[match[2]]


def parse_bytes(text: str, flag: str) -> int:
    """Bytes of `14MB`, `14.02M` or `56000000`; prefixes are decimal.

    Raises:
        TfdistError: anything else, or less than one byte.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([kmgt]?)b?", text.strip().casefold())
    value = round(float(match[1]) * _PREFIXES[match[2]]) if match else 0
    if value < 1:
        raise TfdistError(f"{flag} {text}: give a number of bytes, as 14MB or 56000000")
    return value


def parse_devices(text: str, flag: str) -> tuple[int, ...]:
    """The numbers in `1,2,4`, and `1,2,4,...,512`, where the ratio of the two before the dots continues.

    Raises:
        TfdistError: no positive integers in ascending order, or dots between other numbers.
    """
    try:
        numbers = tuple(_numbers([part.strip() for part in text.split(",")]))
    except (ValueError, IndexError):
        numbers = ()
    if not numbers or list(numbers) != sorted(set(numbers)) or not 0 < numbers[0] <= numbers[-1] <= _MOST_DEVICES:
        raise TfdistError(f"{flag} {text}: give numbers of devices in ascending order, as 1,2,4,8 or 1,2,4,...,512")
    return numbers


def _numbers(parts: list[str]) -> Iterator[int]:
    """Raises ValueError or IndexError for anything but numbers, and dots between them."""
    for index, part in enumerate(parts):
        if part != "...":
            yield _integer(part)
            continue
        before, last, end = _integer(parts[index - 2]), _integer(parts[index - 1]), _integer(parts[index + 1])
        if index < 2 or last <= before or last % before:
            raise ValueError
        ratio, number = last // before, last
        while (number := number * ratio) < end:
            yield number


def _integer(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(text)
    return int(text)
