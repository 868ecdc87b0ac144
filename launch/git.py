"""Questions to git about a folder, answered without running a program that its repository names."""

import os
import subprocess
from pathlib import Path

_GIT = (
    "git", "--no-replace-objects", "--no-optional-locks", "-c", "core.warnAmbiguousRefs=true",
    "-c", "safe.bareRepository=explicit", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
)  # fmt: skip
"""A hash is its own commit; a folder of the repository is no repository itself, and no program of it runs."""


def git(*words: str, folder: str | Path = ".") -> "subprocess.CompletedProcess[str]":
    """What git answers in a folder; exit code 127 if it is not installed. Bytes that are not UTF-8 are surrogates."""
    env = {**os.environ, "LC_ALL": "C"}  # messages are read
    try:
        return subprocess.run(
            [*_GIT, *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", "git is not installed")
