"""Durations, sizes, counts and bandwidths on the command line, each in one notation everywhere. Pure.

Sizes are written as in the NCCL tests: K, M and G are 2 to the 10, 20 and 30. Bandwidths are decimal.
"""

import re

from tfdist.launch.errors import TfdistError

_SECONDS = {
    "": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


def parse_seconds(text: str, flag: str, least: float | None = None) -> float:
    """The seconds of a duration, positive ones, or `least` and more.

    Raises:
        TfdistError: another notation, or too few.
    """
    match = re.fullmatch(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([nµμum]?s|min|m|h|d|)", text.strip().casefold())
    if match is None:
        raise TfdistError(f"{flag} {text}: give a duration, as 5s, 10m, 1h or 30d; without a unit it is in seconds")
    seconds = float(match[1]) * _SECONDS[re.sub("[µμ]", "u", match[2])]
    if seconds <= 0 if least is None else seconds < least:
        raise TfdistError(f"{flag} {text}: must be {'positive' if least is None else f'at least {least:g}'}")
    return seconds


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 64
"""Sizes in a sweep; more are a typo."""


def parse_sizes(text: str) -> tuple[int, ...]:
    """Bytes of --sizes `1K:256M` (each size twice the one before), `1K:256M:4` (4 times) or `1K,64K,1M`.

    Raises:
        TfdistError: another notation, or a range without sizes or with too many.
    """
    if ":" not in text:
        return tuple(parse_size(part, "--sizes") for part in text.split(","))
    first, _, rest = text.partition(":")
    last, _, factor_text = rest.partition(":")
    factor = int(factor_text or 2) if re.fullmatch("[0-9]{0,9}", factor_text) else 0
    if factor < 2:
        raise TfdistError(f"--sizes {text}: the factor is {factor_text!r}; make it an integer of at least 2")
    size, end = parse_size(first, "--sizes"), parse_size(last, "--sizes")
    if end < size:
        raise TfdistError(f"--sizes {text}: ends below its first size; write it as {last}:{first}")
    sizes = [size]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    if len(sizes) > _MOST:
        raise TfdistError(f"--sizes {text}: {len(sizes)} sizes; use at most {_MOST}")
    return tuple(sizes)


def parse_size(text: str, flag: str, least: int = 1) -> int:
    """Bytes of `4096`, `4K`, `13.4M` or `1G`.

    Raises:
        TfdistError: another notation, or fewer than `least`.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise TfdistError(f"{flag} {text}: give bytes, for example 1K, 64K or 256M")
    size = round(float(match[1]) * _UNITS[match[2]])
    if not least <= size <= 1 << 40:
        raise TfdistError(f"{flag} {text}: must be from {least} byte to 1024G")
    return size


def size_text(size: int) -> str:
    """`1K`, `256M`, or the number of bytes if it is no multiple."""
    for unit, factor in reversed(_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def parse_bandwidth(text: str, flag: str) -> float:
    """Bytes/s of `10Gbit`, `10 Gbit/s`, `10Gbps` (bits), `1.2GB/s` or `1.2GBps` (bytes); prefixes are decimal.

    Raises:
        TfdistError: anything else; a number without a unit, too.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(bit|b)(/s|ps|)", text.strip(), re.IGNORECASE)
    value = 0.0
    if match:
        bits = 1 if match[3] == "B" else 8
        value = float(match[1]) * _PREFIXES[match[2].casefold()] / bits
    if value <= 0:
        raise TfdistError(f"{flag} {text}: give a bandwidth, as 10Gbit, 100Mbit/s or 1.2GB/s")
    return value


_MOST_COUNT = 10_000


def parse_counts(text: str, flag: str, least: int = 1) -> tuple[int, ...]:
    """The numbers in `1,2,4`, and `1,2,4,...,512`, where the ratio of the two before the dots continues.

    Raises:
        TfdistError: no integers of at least `least` in ascending order, or dots between other numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    numbers = [0]
    for index, part in enumerate(parts):
        if part == "..." and 2 <= index < len(parts) - 1 and re.fullmatch("[0-9]{1,9}", parts[index + 1]):
            before, last, end = *numbers[-2:], int(parts[index + 1])
            if before and last > before and last % before == 0:
                while (number := numbers[-1] * (last // before)) < end:
                    numbers.append(number)
                continue
        numbers.append(int(part) if re.fullmatch("[0-9]{1,9}", part) else 0)
    counts = tuple(numbers[1:])
    if not least <= counts[0] <= counts[-1] <= _MOST_COUNT or list(counts) != sorted(set(counts)):
        few = f" of at least {least}" if least > 1 else ""
        raise TfdistError(f"{flag} {text}: give integers{few} in ascending order, as 2,4,8 or 2,4,8,...,512")
    return counts
