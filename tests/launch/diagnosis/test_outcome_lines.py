"""The lines about the end of a job."""

from dataclasses import replace

from tfdist.launch.diagnosis.history import Attempt, Outcome, Status
from tfdist.launch.diagnosis.outcome_lines import SHOWN_ATTEMPTS, SHOWN_CASUALTIES, Label, lines_of
from tfdist.launch.diagnosis.straggler import StragglerReport

FAILED = Outcome(
    Status.FAILED,
    1,
    "worker-1 exited with code 1",
    "worker-1",
    log=("ValueError: bad data",),
    hints=("do this",),
    casualties={"worker-0": "stopped by tfdist", "ps-0": "was killed by SIGSEGV", "worker-2": "stopped by tfdist"},
    warnings=("left over",),
    run_dir="runs/x",
    not_restarted="--max-restarts 1 is used up",
)


def test_a_failure_is_told_from_the_traceback_to_the_logs():
    assert [*map(str, lines_of(FAILED))] == [
        "| ValueError: bad data",
        "hint: do this",
        "then worker-0 and worker-2 stopped by tfdist",
        "then ps-0 was killed by SIGSEGV",
        "warning: left over",
        "not restarted: --max-restarts 1 is used up",
        "logs: runs/x",
    ]


def test_of_many_other_ends_the_first_are_told():
    casualties = {f"worker-{number}": f"was lost with h{number // 2}" for number in range(2 * SHOWN_CASUALTIES + 3)}
    told = [str(line) for line in lines_of(replace(FAILED, casualties=casualties))][2:-3]
    assert told[SHOWN_CASUALTIES - 1 :] == [
        "then worker-18 and worker-19 was lost with h9",
        "... 3 more tasks in outcome.json",
    ]
    assert len(told) == SHOWN_CASUALTIES + 1


def test_of_many_attempts_the_first_and_the_last_are_told():
    attempts = tuple(Attempt(number, (), 0.0, 1.0, reason="lost") for number in range(2 * SHOWN_ATTEMPTS + 2))
    told = [str(line) for line in lines_of(replace(FAILED, attempts=attempts)) if "attempt" in line.label + line.text]
    assert told[SHOWN_ATTEMPTS - 1 : SHOWN_ATTEMPTS + 2] == [
        "attempt 9: 1 s: lost",
        "... 2 more attempts in outcome.json",
        "attempt 12: 1 s: lost",
    ]
    assert len(told) == 2 * SHOWN_ATTEMPTS + 1


def test_the_workers_that_held_up_the_others_longest_are_told_first():
    short, long = (StragglerReport("worker-1", "h", 0.0, until, "worker-1 is slow", {}) for until in (20.0, 120.0))
    told = [line.text for line in lines_of(replace(FAILED, stragglers=(short, long))) if line.label is Label.STRAGGLER]
    assert told == ["2 min worker-1 is slow", "20 s worker-1 is slow"]
