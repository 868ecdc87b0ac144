"""The bench of the GitHub action in action.yml: runs it, then writes the job summary and the outputs.

Everything comes in variables: INPUT_* from action.yml, RUNNER_TEMP and GITHUB_* from the runner. Needs `tfdist` on
PATH. A summary shows neither data URIs nor files of an artifact, so its picture is made of characters.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TITLES = {
    "slower": "slower than the base",
    "not-slower": "not slower than the base",
    "inconclusive": "inconclusive",
    "nothing-compared": "nothing compared",
    "failed": "the bench failed",
}
"""Titles of the summary by verdict."""
NOTHING_COMPARED = 3
"""Exit code of `tfdist bench --fail-slower`."""
WIDTH = 60
"""Columns of the picture."""


def bound_of(text: str) -> float:
    """The share of --fail-slower, as tfdist reads it; 0: none."""
    return float(text.strip(" %")) / (100 if "%" in text else 1) if text else 0.0


def verdict_of(code: int, rows: Sequence[Mapping[str, Any]], bound: float) -> str:
    """The verdict on all arms: a key of `TITLES`.

    Args:
        code: exit code of the bench.
        rows: `versions` of its JSON.
        bound: share of the base's speed that an arm may lose.
    """
    if any(row["too_slow"] or (not bound and row["verdict"] == "slower") for row in rows):
        return "slower"
    if code not in (0, NOTHING_COMPARED):
        return "failed"
    lows = [row["low"] for row in rows]
    if not any(lows):
        return "nothing-compared"
    return "not-slower" if code == 0 and all(low and low >= 1 - bound for low in lows) else "inconclusive"


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a table of ratios."""
    yield "| arm | times its base | 95 % interval | verdict |"
    yield "| --- | --: | --: | --- |"
    for row in rows:
        arm = row["arm"].replace("|", "\\|")
        interval = f"{row['low']:.3f} to {row['high']:.3f}" if row["low"] else "-"
        verdict = "slower than the bound" if row["too_slow"] else row["verdict"]
        yield f"| {arm} | {row['ratio']:.3f} | {interval} | {verdict} |"


def picture(rows: Sequence[Mapping[str, Any]], bound: float) -> Iterator[str]:
    """The lines of a picture of ratios and intervals, above a scale."""
    low = min(1 - bound, *(row["low"] for row in rows)) - 0.01
    high = max(1.0, *(row["high"] for row in rows)) + 0.01
    names = max(len(row["arm"]) for row in rows)

    def column(ratio: float) -> int:
        return round((ratio - low) / (high - low) * (WIDTH - 1))

    for row in rows:
        first, last = column(row["low"]), column(row["high"])
        line = [*" " * first, *"-" * (last - first + 1), *" " * (WIDTH - last - 1)]
        for ratio, mark in ((1 - bound, ":"), (1.0, "|"), (row["ratio"], "o")):
            line[column(ratio)] = mark
        yield f"{row['arm']:{names}}  {''.join(line)}".rstrip()
    ends = f"{low:<{WIDTH // 2}.2f}{high:>{WIDTH // 2}.2f}"
    yield f"{'':{names}}  {ends}"


def summary(verdict: str, result: Mapping[str, Any], bound: float, folder: Path, artifact: str) -> str:
    """The job summary, in Markdown.

    Args:
        verdict: a key of `TITLES`.
        result: the JSON of the bench.
        bound: as in `verdict_of`.
        folder: where the bench wrote its report, if it got that far.
        artifact: name of the artifact; empty: none.
    """
    lines = [f"### tfdist: {TITLES[verdict]}", ""]
    if "reason" in result:
        lines += ["```", result["reason"], "```", ""]
    rows = result.get("versions", ())
    if rows:
        lines += [*table(rows), ""]
    if known := [row for row in rows if row["low"]]:
        lines += ["```", *picture(known, bound), "```", ""]
        lines += ["`o` ratio, `-` interval, `|` as fast as the base" + (", `:` the bound" if bound else ""), ""]
    if (report := folder / "report.md").is_file():
        text = re.sub(r"(?m)^!\[.*\]\(.*\)\n", "", report.read_text(encoding="utf-8"))
        lines += ["<details><summary>Report</summary>", "", text, "</details>", ""]
        lines += [f"Pictures, the report as a page and logs: artifact `{artifact}`", ""] if artifact else []
    return "\n".join(lines)


def append(variable: str, text: str) -> None:
    """Append to the file whose path the runner has put into `variable`."""
    with Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(text)


def bench(folder: Path) -> tuple[int, dict[str, Any]]:
    """Run the bench; returns its exit code and its JSON, which is empty if it did not get that far."""
    words = {}
    for name in ("options", "command"):
        text = os.environ[f"INPUT_{name.upper()}"]
        try:
            words[name] = shlex.split(text)
        except ValueError:
            reason = f"{name}: {text}: a quote is not closed; close it"
            sys.stderr.write(f"tfdist: {reason}\n")
            return 2, {"reason": reason}
    bound = os.environ["INPUT_FAIL_SLOWER"]
    argv = ["tfdist", "bench", *words["options"], "--against", os.environ["INPUT_AGAINST"]]
    argv += ["--fail-slower", bound] if bound else []
    argv += ["--json", "--out", str(folder), "--", *words["command"]]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    return done.returncode, json.loads(last) if last.startswith("{") else {}


def main() -> int:
    """Run the bench; returns its exit code."""
    folder = Path(tempfile.mkdtemp(prefix="tfdist-", dir=os.environ["RUNNER_TEMP"])) / "bench"
    append("GITHUB_OUTPUT", f"folder={folder}\n")  # now, so that a cancelled job uploads what there is
    code, result = bench(folder)
    rows = result.get("versions", ())
    bound = bound_of(os.environ["INPUT_FAIL_SLOWER"]) if rows else 0.0  # the bench has accepted it
    verdict = verdict_of(code, rows, bound)
    append("GITHUB_STEP_SUMMARY", summary(verdict, result, bound, folder, os.environ["INPUT_ARTIFACT"]))
    append("GITHUB_OUTPUT", f"verdict={verdict}\nexit-code={code}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
