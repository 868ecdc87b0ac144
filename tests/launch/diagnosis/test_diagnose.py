from dataclasses import replace

import pytest

from tests.launch.jobs import python_job
from tfdist.launch.cluster import Cluster
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.evidence import is_peer_failure
from tfdist.launch.diagnosis.history import TAIL_LINES

from .histories import Replay, endings, exited, own_failures, peers, stalls, stopped, stuck, wrote
from .histories.texts import CLOUD, NO_COORDINATOR, NO_PS, SHAPES, START_UP, aborted_by, traceback, unhealthy

IN_GRAPH = '  File "train.py", line 7, in <module>\n\n'
REPLAYS = (*own_failures.ROWS, *peers.ROWS, *endings.ROWS, *stalls.ROWS)


def test_there_are_histories_enough_and_each_has_its_name():
    assert len({replay.name for replay in REPLAYS}) == len(REPLAYS) >= 60


@pytest.mark.parametrize("replay", REPLAYS, ids=lambda replay: replay.name)
def test_the_outcome_of_a_history(replay: Replay):
    outcome = diagnose(replay.history(), replay.job())
    assert outcome.reason == replay.reason
    assert (outcome.exit_code, outcome.status, outcome.culprits) == (replay.code, replay.status, replay.culprits)
    assert outcome.casualties == replay.casualties
    assert outcome.culprit == (replay.culprits[0] if replay.culprits else None)


def outcome_of(*happened, roles=None):
    replay = Replay("", happened, "", 0, roles=roles or {"worker": 1})
    return diagnose(replay.history(), replay.job())


def test_the_log_of_the_culprit_is_its_traceback_without_the_messages_of_tensorflow():
    text = START_UP + "some output\n" + traceback("ValueError: bad data")
    outcome = outcome_of(wrote("worker-0", text, 1.0), exited("worker-0", 1, 1.0))
    assert outcome.log == tuple(traceback("ValueError: bad data").splitlines())


def test_the_log_of_a_culprit_without_an_exception_is_its_last_lines():
    outcome = outcome_of(wrote("worker-0", START_UP + "line\n" * 50 + "last", 1.0), exited("worker-0", 3, 1.0))
    assert outcome.log == ("line",) * 19 + ("last",)
    quiet = outcome_of(wrote("worker-0", "printed", 1.0, "stdout"), exited("worker-0", -9, 1.0))
    assert quiet.log == ("printed",)


def test_a_chain_of_exceptions_is_shown_whole():
    text = traceback("RuntimeError: outer", cause="KeyError: 'inner'")
    outcome = outcome_of(wrote("worker-0", text, 1.0), exited("worker-0", 1, 1.0))
    assert outcome.reason.endswith("RuntimeError: outer")
    assert "KeyError: 'inner'" in outcome.log


def test_lines_that_arrive_in_pieces_and_progress_bars_are_joined():
    pieces = ("Traceback (most recent call last):\n", " 10%\r", " 20%\r 30%\nValueEr", "ror: bad ", "data\n")
    happened = tuple(wrote("worker-0", piece, 1.0) for piece in pieces)
    raw = tuple(
        (at, type(message)(message.task, message.stream, piece))
        for (at, message), piece in zip(happened, pieces, strict=True)
    )
    history = Replay("", raw, "", 0).history()
    assert history.tail("worker-0") == ["Traceback (most recent call last):", " 30%", "ValueError: bad data"]


def test_only_the_last_lines_are_kept():
    history = Replay("", (wrote("worker-0", "".join(f"{n}\n" for n in range(5000)), 1.0),), "", 0).history()
    assert history.tail("worker-0") == [str(n) for n in range(5000 - len(history.tail("worker-0")), 5000)]
    assert len(history.tail("worker-0")) >= TAIL_LINES - 1


@pytest.mark.parametrize(
    ("task", "text", "peer"),
    [
        ("worker-0", aborted_by(1), "worker-1 (h2:2222)"),
        ("worker-0", aborted_by(1).replace(IN_GRAPH, "<stack traces unavailable>\n"), "worker-1 (h2:2222)"),
        ("worker-1", unhealthy(0), "worker-0 (h1:2222)"),
        ("worker-1", NO_COORDINATOR, "worker-0 (h1:2222)"),
    ],
)
def test_a_peer_with_a_launcher_of_its_own_is_named(task, text, peer):
    happened = (wrote(task, text, 1.0), exited(task, 1, 1.0))
    job = python_job("", {"worker": 2})
    plans = tuple(plan for plan in job.plans if plan.task.name == task)
    job = replace(job, plans=plans, cluster=Cluster({"worker": ("h1:2222", "h2:2222")}))
    outcome = diagnose(Replay("", happened, "", 0).history(), job)
    assert outcome.reason.startswith(f"{task} exited with code 1: {peer} no longer answered: "), outcome.reason
    assert "Error: Collective ops is aborted by: " in outcome.reason
    assert outcome.culprits == (task,)
    assert outcome.log[0] == "Traceback (most recent call last):"


def test_a_process_that_is_left_over_is_a_warning_also_after_a_success():
    outcome = outcome_of(exited("chief-0", 0, 1.0), stuck("ps-0", 14.0), roles={"chief": 1, "ps": 1})
    assert outcome.exit_code == 0
    (warning,) = outcome.warnings
    assert warning.startswith("ps-0 could not be killed (state D")


def test_a_process_that_ended_after_all_is_not_left_over():
    history = (
        stuck("ps-0", 10.0),
        stopped(2.0, "worker-0", "ps-0"),
        exited("ps-0", -9, 14.0),
        exited("worker-0", -15, 20.0),
    )
    outcome = outcome_of(exited("chief-0", 3, 1.0), *history, roles={"chief": 1, "worker": 1, "ps": 1})
    assert outcome.warnings == ()
    assert outcome.casualties["ps-0"] == "stopped by tfdist, with SIGKILL after 12 s"


@pytest.mark.parametrize(
    ("text", "is_peer"),
    [
        (aborted_by(1), True),
        (aborted_by(1, "recvmsg:Connection reset by peer"), True),
        (unhealthy(1), True),
        (NO_COORDINATOR, True),
        (NO_PS, True),
        ("tensorflow.python.framework.errors_impl.DeadlineExceededError: Collective has timed out", True),
        ("UnavailableError: Collective ops is aborted by: Cancelled", True),
        (SHAPES, False),
        (CLOUD, False),
        ("grpc._channel._InactiveRpcError: status = StatusCode.UNAVAILABLE, details = 'Socket closed'", False),
        ("etcd3.exceptions.ConnectionFailedError: failed to connect to all addresses", False),
    ],
)
def test_only_what_tensorflow_says_of_its_peers_is_a_peers_failure(text, is_peer):
    assert is_peer_failure(text) is is_peer
