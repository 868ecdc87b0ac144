import subprocess
import sys

import pytest

from tfdist.launch.agents.shield import shield, unshield

PROGRAM = (
    "import os, resource, sys\n"
    "hole = os.open('/dev/null', 0); last = os.open('/dev/null', 0); os.close(hole)\n"  # fork leaves no descriptor in between
    "print('ready', flush=True)\n"
    "for _ in sys.stdin:\n"
    "    try:\n"
    "        os.close(os.open('/dev/null', 0)); print('opened', flush=True)\n"
    "    except OSError as error:\n"
    "        print(error.strerror, os.fstat(last).st_nlink > 0, flush=True)\n"
)


@pytest.fixture
def process():
    argv = [sys.executable, "-S", "-c", PROGRAM]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def answer(process):
    print(file=process.stdin, flush=True)
    return process.stdout.readline().rstrip("\n")


def test_a_shielded_process_keeps_what_it_has_and_opens_nothing(process):
    assert answer(process) == "opened"
    limit = shield(process.pid)
    assert answer(process) == "Too many open files True"
    unshield(process.pid, limit)
    assert answer(process) == "opened"


def test_a_process_that_is_gone_needs_no_shield():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert shield(process.pid) is None
    unshield(process.pid, (1024, 4096))
