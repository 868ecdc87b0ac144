"""The text and the JSON about the end of a launch."""

import io
from contextlib import redirect_stderr
from dataclasses import replace

from tfdist.cli.show.outcome import outcome_json, show_outcome
from tfdist.launch.diagnosis.history import Attempt, Outcome, Status
from tfdist.launch.text import has_controls

REASON = "worker-1 exited with code 1: ValueError: bad data"
LOG = ("Traceback (most recent call last):", '  File "train.py", line 7', "ValueError: bad data")
FAILED = Outcome(Status.FAILED, 1, REASON, "worker-1", ("worker-1",), LOG, run_dir="runs/x")


def printed(outcome, **options):
    with redirect_stderr(io.StringIO()) as err:
        show_outcome(outcome, None, quiet=False, json=False, again="tfdist launch x", **options)
    return err.getvalue().strip().splitlines()


def test_the_block_begins_with_the_exception_and_ends_with_the_command():
    assert printed(FAILED) == [
        f"tfdist: {REASON}",
        *(f"  | {line}" for line in LOG),
        "  logs:  runs/x",
        "  again: tfdist launch x",
    ]


def test_without_a_known_command_none_is_named(capsys):
    show_outcome(FAILED, None, quiet=False, json=False, again="")
    assert capsys.readouterr().err.splitlines()[-1] == "  logs:  runs/x"


def test_after_a_stall_the_stacks_are_named():
    stalled = replace(FAILED, exit_code=76, attempts=(Attempt(0, (), 0.0), Attempt(1, (), 1.0)))
    assert "  stacks: runs/x/attempt-*/*/stacks.txt" in printed(stalled)


def test_the_command_that_continues_a_saved_run_is_the_last_line():
    assert printed(FAILED, resume="tfdist launch --resume runs/x")[-2:] == [
        "  again: tfdist launch x",
        "  resume: tfdist launch --resume runs/x",
    ]


def test_lines_that_are_on_the_screen_are_not_repeated():
    seen = []

    def is_shown(task, lines):
        seen.append((task, tuple(lines)))
        return True

    assert printed(FAILED, is_shown=is_shown) == [f"tfdist: {REASON}", "  logs:  runs/x", "  again: tfdist launch x"]
    assert seen == [("worker-1", LOG)]


def test_tasks_that_ended_alike_share_a_line():
    ended = {f"worker-{index}": "stopped by tfdist" for index in range(2, 9)} | {"worker-0": "was killed by SIGSEGV"}
    outcome = Outcome(Status.FAILED, 1, REASON, casualties=ended, hints=("do this",), warnings=("left over",))
    assert printed(outcome)[1:5] == [
        "  hint:  do this",
        "  then worker-2, worker-3, worker-4, worker-5 and 3 more stopped by tfdist",
        "  then worker-0 was killed by SIGSEGV",
        "  warning: left over",
    ]


def test_bytes_that_are_not_utf_8_are_replaced():
    assert (
        printed(Outcome(Status.FAILED, 1, REASON, "t", ("t",), ("a\udcffb",)))[1] == "  | a\N{REPLACEMENT CHARACTER}b"
    )


def test_a_process_that_is_left_over_after_a_success_is_a_warning(capsys):
    show_outcome(Outcome(Status.OK, 0, "", warnings=("ps-0 could not be killed",)), None, quiet=True, json=False)
    assert capsys.readouterr().err == "warning: ps-0 could not be killed\n"


def test_the_json_names_all_culprits_and_hints():
    result = outcome_json(FAILED, None)
    assert (result["culprits"], result["hints"], result["culprit"]) == (["worker-1"], [], "worker-1")


ATTEMPTS = (
    Attempt(0, ("worker-0",), 100.0, 130.0, 110.0, "worker-1 was killed by SIGKILL", "worker-1", 137, None, 120),
    Attempt(1, ("worker-0",), 131.0, 150.0, None, REASON, "worker-1", 1, 100, None, "2 workers instead of 3 (lost h2)"),
)


def test_the_attempts_of_a_job_that_was_restarted_are_listed():
    outcome = replace(FAILED, attempts=ATTEMPTS, not_restarted="--max-restarts 1 is used up")
    assert printed(outcome)[4:7] == [
        "  attempt 0: 30 s to step 120: worker-1 was killed by SIGKILL",
        f"  attempt 1: 19 s from step 100 (2 workers instead of 3 (lost h2)): {REASON}",
        "  not restarted: --max-restarts 1 is used up",
    ]


def test_the_only_attempt_is_not_listed():
    assert not any("attempt" in line for line in printed(replace(FAILED, attempts=ATTEMPTS[:1])))


def test_a_success_after_restarts_says_so(capsys):
    outcome = Outcome(Status.OK, 0, "", wall_s=50.0, run_dir="runs/x", attempts=ATTEMPTS)
    show_outcome(outcome, None, quiet=False, json=False)
    assert capsys.readouterr().out == "done in 50.0 s after 1 restart; kept in runs/x\n"


def test_no_text_of_others_controls_the_terminal(capsys):
    evil = "\x1b]0;x\x07a\x9bb\u202e"
    outcome = replace(FAILED, reason=evil, log=(evil,), hints=(evil,), casualties={evil: evil}, not_restarted=evil)
    assert not has_controls("\n".join(printed(outcome)))
    assert "  hint:  ab" in printed(outcome)
    done = Outcome(Status.OK, 0, "", None, (), (), run_dir=evil, warnings=(evil,))
    show_outcome(done, None, quiet=False, json=False)
    assert not has_controls("".join(capsys.readouterr()))
