"""All-reduce between two hosts over links of known speed: what `tfdist collectives` shows at 1 Gbit/s and at 100 Mbit/s.

python -m lab.collectives_on_links [--out bench_results] [--rounds 12]    # as root; about 10 minutes

The hosts are network namespaces on this machine, pinned to a core each. Token buckets (tc tbf) limit the link.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.integration.namespaces import Network, missing, network
from tests.integration.nethost import SYSTEM_PATH
from tfdist.bench.collectives.figures import figures_of
from tfdist.bench.collectives.results import read_collectives


@dataclass(frozen=True)
class Speed:
    """A link, and sizes that take at most a few seconds on it."""

    name: str
    mbit: int
    sizes: str


SPEEDS = (Speed("1gbit", 1000, "1K:64M:4"), Speed("100mbit", 100, "1K:16M:4"))
OPTIONS = ("--hosts", "h1,h2", "--communication", "ring", "--model-gradients", "--bytes-per-pack", "512K,4M")


def measure(net: Network, speed: Speed, out: Path, rounds: int) -> None:
    """Write the folder `out`; the paths of the keys and of Python stay out of its command line."""
    arguments = (*OPTIONS, "--sizes", speed.sizes, "--rounds", str(rounds), "--out", str(out))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TFDIST_", "TF_"))}
    hosts = {"TFDIST_SSH": str(net.ssh), "TFDIST_PYTHON": sys.executable}
    environ = {**inherited, "HOME": str(net.folder), "PATH": SYSTEM_PATH, **hosts}
    with net.limit_mbit(speed.mbit):
        command = net.in_hub(sys.executable, "-m", "tfdist", "collectives", *arguments)
        subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, check=True)


def summary(speed: Speed, out: Path) -> str:
    """The highest bus bandwidth, compared with the link."""
    figures = figures_of(read_collectives(out))
    best = max(figures, key=lambda figure: figure.line.busbw)
    share = best.line.busbw * 8e3 / speed.mbit
    return f"{speed.mbit} Mbit/s: at most {best.line.busbw * 1e3:.1f} MB/s bus bandwidth, {share:.0%} of the link"


def main() -> None:
    """Measure every speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench_results"), help="receives a folder for each link")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=[speed.name for speed in SPEEDS], help="this link alone")
    options = parser.parse_args()
    why = missing()
    if why:
        sys.exit(f"no hosts in network namespaces: {why}")
    with tempfile.TemporaryDirectory() as folder, network(Path(folder), 2) as net:
        for speed in SPEEDS:
            if options.only in (None, speed.name):
                out = options.out / f"collectives-2-hosts-{speed.name}"
                measure(net, speed, out, options.rounds)
                print(summary(speed, out))


if __name__ == "__main__":
    main()
