"""The counted updates of a parameter-server's workers as text."""

from tfdist.bench.report.format import EMPTY
from tfdist.bench.updates import Staleness, Updates


def staleness_text(staleness: Staleness | None) -> str:
    """`1.02, 2, 4`: mean, p95, max."""
    return EMPTY if staleness is None else f"{staleness.mean:.2f}, {staleness.p95}, {staleness.largest}"


def shares_text(updates: Updates | None) -> str:
    """`51 %, 49 %`, by worker."""
    return EMPTY if updates is None or not updates.shares else ", ".join(f"{share:.0%}" for share in updates.shares)
