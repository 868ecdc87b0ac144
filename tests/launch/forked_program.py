"""A program that runs the code in CODE, executed or forked from a template."""

import os
import tempfile

CODE = "TFDIST_TEST_CODE"


def preload() -> None:
    """Import nothing, but write what a variable says, and let tempfile remember the folder of the template."""
    tempfile.gettempdir()
    os.write(2, os.environ.get("TFDIST_TEST_SAYS", "").encode())


def main() -> int:
    exec(os.environ[CODE], {"__name__": "__main__"})
    return 0
