"""Whether `tfdist doctor --burn` names a slow host and a slow link, and nothing where all are equal.

python -m lab.burn_cases [--times 10]    # as root; a minute for each of 3 times 10

Three hosts are network namespaces on this machine. Adds a line to bench_results/burn.csv after each.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pandas as pd
from rich.console import Console

from lab.slow_workers import throttled
from tests.integration.launcher import Launcher
from tests.integration.namespaces import Network, network
from tests.integration.sshd import pid_file

OUT = Path(__file__).parents[1] / "bench_results" / "burn.csv"
SECONDS = 6
MBIT = 100


CASES: dict[str, tuple[Callable[[Network], AbstractContextManager[object]], set[str]]] = {
    "equal": (lambda net: nullcontext(), set()),
    "throttled host": (lambda net: throttled(int(pid_file(net.hosts[2]).read_text()), 0.25), {"compute h3"}),
    "slow link": (lambda net: net.hosts[2].limit_mbit(MBIT), {"exchange h1 - h3", "exchange h2 - h3"}),
}
"""What is planted, and the rows that must be warnings."""


def warnings_of(net: Network) -> tuple[set[str], str]:
    """Check and host of each row about compute or exchange that is a warning, and all their texts."""
    launcher = Launcher(net, Path(sys.executable), net.folder)
    done = launcher.run("--hosts", "h1,h2,h3", "--burn", f"{SECONDS}s", "--json", command="doctor", timeout_s=600)
    rows = [row for row in json.loads(done.out)["rows"] if row["check"] in ("compute", "exchange", "burn")]
    slow = {f"{row['check']} {row['host']}" for row in rows if row["verdict"] != "ok"}
    return slow, "; ".join(f"{row['host']}: {row['text']}" for row in rows)


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="of each case")
    options = parser.parse_args()
    console, table = Console(), pd.read_csv(OUT) if OUT.exists() else pd.DataFrame({"case": []})
    with tempfile.TemporaryDirectory() as folder, network(Path(folder), 3) as net:
        for number in range(options.times):
            for name, (plant, expected) in CASES.items():
                if (table.case == name).sum() > number:
                    continue
                with plant(net):
                    slow, texts = warnings_of(net)
                row = {"case": name, "right": slow == expected, "warnings": ", ".join(sorted(slow)), "rows": texts}
                table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
                table.to_csv(OUT, index=False, lineterminator="\n")
                console.print(f"{name} {number + 1}: {'right' if row['right'] else 'WRONG'}: {texts}", soft_wrap=True)


if __name__ == "__main__":
    main()
