"""The way from the words of a command to a job: few modules, always down, one function that plans."""

import sys

import pytest

from tests.test_imports import ORDER
from tfdist.cli.command import run
from tfdist.jobs.plan import Planned
from tfdist.jobs.presets import Choice
from tfdist.jobs.request import Request
from tfdist.launch.job import Job
from tfdist.strategies.choice import StrategyChoice

STAGES = (Request, Choice, StrategyChoice, Job, Planned)
"""A request, and what it becomes."""
SHOWN = ("tfdist.cli.show", "tfdist.launch.doctor", "tfdist.launch.runs")
"""What a dry run does with the plan."""
MOST = 15


class Way:
    """The calls that take one of the `STAGES`: their modules, those from a lower package, and who made a job."""

    def __init__(self):
        self.modules, self.upward, self.planners = set(), set(), set()

    def note(self, frame, event, _):
        here = frame.f_globals.get("__name__", "")
        if event != "call" or not here.startswith("tfdist.") or here.startswith(SHOWN):
            return
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not any(isinstance(frame.f_locals.get(name), STAGES) for name in names):
            return
        self.modules.add(here)
        caller = calling_module(frame.f_back)
        if level(here) > level(caller):
            self.upward.add((caller, here, code.co_name))
        if code.co_name == "job_of":
            self.planners.add(caller)


def calling_module(frame):
    """The first module of tfdist below this frame."""
    while not frame.f_globals.get("__name__", "").startswith("tfdist."):
        frame = frame.f_back
    return frame.f_globals["__name__"]


def level(module):
    return ORDER.index(module.split(".")[1])


@pytest.mark.parametrize(
    "words",
    [
        ["launch", "--strategy", "multiworker", "--workers", "2", "--preset", "smoke", "--dry-run"],
        ["launch", "--strategy", "multiworker", "--workers", "2", "--dry-run", "--", "true"],
        ["bench", "--suite", "cpu", "--dry-run"],
        ["sbatch", "--nodes", "2", "launch", "--preset", "smoke", "--checkpoint-every", "10"],
    ],
    ids=["launch", "own", "bench", "sbatch"],
)
def test_a_request_becomes_a_job_in_few_modules_and_never_climbs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    way = Way()
    sys.setprofile(way.note)
    try:
        code = run(words)
    finally:
        sys.setprofile(None)
    assert code == 0
    assert way.upward == set()
    assert len(way.modules) <= MOST, sorted(way.modules)
    assert way.planners == {"tfdist.jobs.plan"}
