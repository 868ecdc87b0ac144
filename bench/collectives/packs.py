"""Which size of packs exchanges the gradients of a model fastest. Pure."""

from collections.abc import Mapping, Sequence

from tfdist.bench.collectives.results import Line
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, Block, Comparison, Statistics
from tfdist.launch.quantities import size_text
from tfdist.launch.text import listed

_ONE = "one"


def pack_sentences(lines: Sequence[Line]) -> tuple[str, ...]:
    """A sentence for each arm that exchanged the same gradients in packs of several sizes, against one pack."""
    lists = sorted((line for line in lines if line.tensors > 1), key=lambda line: line.pack_bytes or 0)
    arms = dict.fromkeys(line.arm for line in lists)
    return tuple(filter(None, (_sentence(arm, [line for line in lists if line.arm == arm]) for arm in arms)))


def _sentence(arm: str, lines: Sequence[Line]) -> str:
    rates: dict[str, dict[Block, float]] = {}
    for line in lines:
        pack = _ONE if line.pack_bytes is None else size_text(line.pack_bytes)
        rates.setdefault(pack, {})[Block(1, line.round, 1)] = 1 / line.seconds
    packs = [pack for pack in rates if pack != _ONE]
    if _ONE not in rates or not packs:
        return ""
    if min(map(len, rates.values())) < FEWEST_ROUNDS:
        return f"{arm}: fewer than {FEWEST_ROUNDS} rounds, so pack sizes are not compared."
    compared = Statistics(rates).compare([(pack, _ONE) for pack in packs])
    return f"{arm}: {_result(dict(zip(packs, compared, strict=True)))}."


def _result(against_one: Mapping[str, Comparison]) -> str:
    faster = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.FASTER}
    slower = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.SLOWER}
    if faster:
        best = max(faster, key=lambda pack: faster[pack].ratio)
        return f"packs of {best} exchange the gradients fastest, {_ratio(faster[best])} the rate of one pack"
    if len(slower) == len(against_one):
        nearest = max(slower, key=lambda pack: slower[pack].ratio)
        return f"one pack is the fastest; packs of {nearest}, the next, have {_ratio(slower[nearest])} its rate"
    rest = [pack for pack in against_one if pack not in slower]
    measurably = f"; packs of {listed(slower)} are measurably slower" if slower else ""
    return f"no measurable difference between one pack and packs of {listed(rest)}{measurably}"


def _ratio(comparison: Comparison) -> str:
    interval = comparison.interval
    limits = "" if interval is None else f" ({interval.level:.0%} interval {interval.low:.2f} to {interval.high:.2f})"
    return f"{comparison.ratio:.2f} times{limits}"
