"""The bench of the GitHub action in action.yml: runs it, then writes the job summary and the outputs.

Everything comes in variables: INPUT_* from action.yml, RUNNER_TEMP and GITHUB_* from the runner. Needs tfdist in this
Python or on PATH. A summary shows neither data URIs nor files of an artifact, so its picture is made of characters.

The working directory is the pull request's: started with `python -I`, this imports nothing from there, and the program
that is measured gets none of the runner's variables. It still runs as the same user: this is no sandbox.
"""

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
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
_GIT = (
    "git", "--no-replace-objects", "-c", "core.warnAmbiguousRefs=true",
    "-c", "safe.bareRepository=explicit", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
)  # fmt: skip
"""As in bench/against.py."""
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TERM|NO_COLOR|TMPDIR|CI|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|pythonLocation|Python3?_ROOT_DIR|PYTHON\w*"
    r"|(LC|XDG|TFDIST|TF|TF2|TFDS|KERAS|XLA|CUDA|CUDNN|NVIDIA|NCCL|ROCM|ROCR|HIP|HSA|TPU)_\w*"
    r"|(OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|MALLOC)_\w*"
    r"|(?i:https?_proxy|no_proxy|all_proxy)|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
"""Names of the variables that the program gets without being asked for."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY|TF_VAR_", re.IGNORECASE)  # TF_ is Terraform's, too
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*@")


class InputError(Exception):
    """An input of the action is wrong; the text is the sentence for the user."""


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


def code(text: str) -> str:
    """Text of others within a line of Markdown, shown as it is: in a code element no @name and no #1 is a link."""
    return f"<code>{re.sub(r'[^0-9A-Za-z /-]', lambda found: f'&#{ord(found[0])};', text)}</code>"


def fenced(lines: Iterable[str]) -> list[str]:
    """Lines of others as a block of code, between more backticks than are in it."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [fence, text, fence, ""]


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a table of ratios."""
    yield "| arm | times its base | 95 % interval | verdict |"
    yield "| --- | --: | --: | --- |"
    for row in rows:
        arm = code(row["arm"])
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
        lines += fenced([result["reason"]])
    rows = result.get("versions", ())
    if rows:
        lines += [*table(rows), ""]
    if known := [row for row in rows if row["low"]]:
        lines += fenced(picture(known, bound))
        lines += ["`o` ratio, `-` interval, `|` as fast as the base" + (", `:` the bound" if bound else ""), ""]
    if (report := folder / "report.md").is_file():
        text = re.sub(r"(?m)^!\[.*\]\(.*\)\n", "", report.read_text(encoding="utf-8"))
        lines += ["<details><summary>Report</summary>", "", text, "</details>", ""]
        if artifact:
            lines += [f"Pictures, the report as a page and logs: artifact {code(artifact)}", ""]
    return "\n".join(lines)


def append(variable: str, text: str) -> None:
    """Append to the file whose path the runner has put into `variable`."""
    with Path(os.environ[variable]).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)


@contextmanager
def no_commands() -> Iterator[None]:
    """Until this ends, lines of stderr such as `::error::` are no commands to the runner. Nothing is on stdout: the
    runner may read a line there before an earlier one of stderr."""
    token = secrets.token_hex(16)
    sys.stderr.write(f"::stop-commands::{token}\n")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(f"\n::{token}::\n")
        sys.stderr.flush()


def environment(more: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the measured program: no file and no token of the runner, unless `more` names it.

    Args:
        more: names of other variables, with spaces between them.
        environ: of this process.

    Raises:
        InputError: one of them is no name.
    """
    names = set(more.split())
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise InputError(f"env: {name}: not the name of a variable; give names with spaces between them")
    return {
        name: value
        for name, value in environ.items()
        if name in names
        or (_PASSED.fullmatch(name) and not _SECRET.search(name) and not _PASSWORD_IN_URL.search(value))
    }


def base_of(against: str, env: Mapping[str, str]) -> str:
    """The base: a folder as it is given if it is written as one, else the hash of a revision of the checkout.

    Raises:
        InputError: it is no revision, or the pull request decides which repository is asked for it.
    """
    working = os.environ["INPUT_WORKING_DIRECTORY"]
    named = os.path.normpath(Path(os.path.realpath(os.environ["GITHUB_WORKSPACE"]), working))
    if not Path(working).is_absolute() and named != str(Path.cwd()):
        raise InputError(
            f"working-directory: {working}: a symbolic link leads to {Path.cwd()}; give that folder itself"
        )
    if against in (".", "..") or against.startswith(("./", "../", "/")):
        return against
    found = git(env, "rev-parse", "--verify", f"{against}^{{commit}}")
    if found.returncode or against.startswith(("-", "^")):
        reason = found.stderr.partition("\n")[0].removeprefix("fatal: ")
        why = f" ({reason})" if "single revision" not in reason else ""
        fix = f"fetch it (fetch-depth of actions/checkout), or for a folder write ./{against}"
        raise InputError(f"against: {against}: not a git revision in the checkout{why}; {fix}")
    if "is ambiguous" in found.stderr:
        fix = "give its hash, or its full name, as refs/remotes/origin/main"
        raise InputError(f"against: {against}: the name of several git references; {fix}")
    if git(env, "rev-parse", "--show-superproject-working-tree").stdout.strip():
        what = f"working-directory: {working}: a submodule, whose earlier commits are not the base of the pull request"
        raise InputError(f"{what}; check that base out into another folder and give it, as against: ../base")
    return found.stdout.strip()


def git(env: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """Run git with messages in English."""
    try:
        return subprocess.run(
            [*_GIT, *words], env={**env, "LC_ALL": "C"}, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", "git is not installed")


def words_of(name: str) -> list[str]:
    """The words of an input.

    Raises:
        InputError: a quote is not closed.
    """
    text = os.environ[f"INPUT_{name.upper()}"]
    try:
        return shlex.split(text)
    except ValueError:
        raise InputError(f"{name}: {text}: a quote is not closed; close it") from None


def bench(folder: Path) -> tuple[int, dict[str, Any]]:
    """Run the bench; returns its exit code and its JSON, which is empty if it did not get that far.

    Raises:
        InputError: an input is wrong.
    """
    env = environment(os.environ["INPUT_ENV"], os.environ)
    bound = os.environ["INPUT_FAIL_SLOWER"]
    # as `tfdist` on PATH, but without the modules of PYTHONPATH, which are for the program
    argv = [sys.executable, "-I", "-m", "tfdist"] if find_spec("tfdist") else ["tfdist"]
    argv += ["bench", *words_of("options"), "--against", base_of(os.environ["INPUT_AGAINST"], env)]
    if bound:
        argv += ["--fail-slower", bound]
    argv += ["--json", "--out", str(folder), "--", *words_of("command")]
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False
    )
    last = done.stdout.strip().rpartition("\n")[2]
    return done.returncode, json.loads(last) if last.startswith("{") else {}


def main() -> int:
    """Run the bench; returns its exit code."""
    folder = Path(tempfile.mkdtemp(prefix="tfdist-", dir=os.environ["RUNNER_TEMP"])) / "bench"
    append("GITHUB_OUTPUT", f"folder={folder}\n")  # now, so that a cancelled job uploads what there is
    with no_commands():
        try:
            exit_code, result = bench(folder)
        except InputError as error:
            sys.stderr.write(f"tfdist: {error}\n")
            exit_code = 2
            result = {"reason": str(error)}
    rows = result.get("versions", ())
    bound = bound_of(os.environ["INPUT_FAIL_SLOWER"]) if rows else 0.0  # the bench has accepted it
    verdict = verdict_of(exit_code, rows, bound)
    append("GITHUB_STEP_SUMMARY", summary(verdict, result, bound, folder, os.environ["INPUT_ARTIFACT"]))
    append("GITHUB_OUTPUT", f"verdict={verdict}\nexit-code={exit_code}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
