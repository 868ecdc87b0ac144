import os
import signal
from itertools import combinations
from types import SimpleNamespace

import pytest

from tfdist.bench.arm_process import Ended
from tfdist.bench.burn import BurnResult, burn, rows_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine
from tfdist.models.record import Record, RecordStatus, Window

H1, H2, H3 = (Host(name) for name in ("h1", "h2", "h3"))


def slow_rows(compute, exchange):
    """The hosts and links that are slow; values in the order of the hosts and of their pairs."""
    hosts = (H1, H2, H3)
    found = BurnResult(
        dict(zip(hosts, compute, strict=True)), busbw=dict(zip(combinations(hosts, 2), exchange, strict=True))
    )
    return {row.host: row.text for row in rows_of(found) if row.verdict != "ok"}


def test_equal_hosts_and_links_are_all_right():
    assert slow_rows((100, 95, 105), (0.4, 0.3, 0.5)) == {}


def test_a_slow_host_is_named_with_its_figure_and_the_median():
    assert slow_rows((100, 41, 105), (0.4, 0.3, 0.5)) == {"h2": "41 images/s, 41% of the median of the hosts (100)"}


def test_a_host_whose_links_are_all_slow_is_named():
    rows = slow_rows((100, 95, 105), (0.4, 0.012, 0.011))
    assert rows.keys() == {"h1 - h3", "h2 - h3"}
    assert rows["h1 - h3"] == "all-reduce 12 MB/s: every link of h3 is slow; those of the others reach 400 MB/s"


def test_a_single_slow_link_is_named():
    rows = slow_rows((100, 95, 105), (0.012, 0.4, 0.5))
    assert rows == {"h1 - h2": "all-reduce 12 MB/s: each of the two reaches 400 MB/s with another host"}


def test_a_link_is_not_blamed_for_a_host_that_computes_slowly():
    assert slow_rows((100, 41, 105), (0.012, 0.4, 0.012)).keys() == {"h2"}


def test_gpus_that_are_slowed_down_are_named():
    (first, second) = rows_of(BurnResult({H1: 100.0, H2: 100.0}, throttled={H2: "heat (hardware)"}))
    assert (first.verdict, second.text) == ("ok", "100 images/s; GPUs slowed down: heat (hardware)")
    assert second.verdict == "warning"
    (_, capped) = rows_of(BurnResult({H1: 100.0, H2: 100.0}, throttled={H2: "power cap"}))
    assert (capped.verdict, capped.text) == ("ok", "100 images/s; GPUs slowed down: power cap")


def test_what_failed_is_a_row():
    (row,) = rows_of(BurnResult(failed={"h1 and h2": "worker-1 failed"}))
    assert (row.host, row.verdict, row.text) == ("h1 and h2", "failed", "worker-1 failed")


def test_hosts_with_more_gpus_are_compared_by_one_gpu(monkeypatch):
    def measured(planned, *_):
        windows = (Window(steps=1, examples=100, elapsed_s=1.0, loss=0.1),)
        return SimpleNamespace(windows={f"worker-{number}": windows for number in range(planned.spec.workers)})

    monkeypatch.setattr("tfdist.bench.burn._measured", measured)
    monkeypatch.setattr("tfdist.bench.burn._exchange", lambda *_: 0.4)
    machines = {host: Machine(tuple(range(8)), ("A100",) * gpus, slots=gpus) for host, gpus in ((H1, 1), (H2, 4))}
    rows = [row for row in rows_of(burn(machines, 1.0, lambda _: None)) if row.check == "compute"]
    assert [(row.verdict, row.text) for row in rows] == [("ok", "100 images/s per GPU")] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_burn(number, monkeypatch):
    class Arm:
        def __init__(self, start, post):
            self.post = post
            os.kill(os.getpid(), number)

        def interrupt(self, number):
            reason = f"interrupted by {signal.Signals(number).name}"
            self.post(Ended("burn", Record("burn", 1, {}, RecordStatus.INTERRUPTED, reason, 128 + number)))

    monkeypatch.setattr("tfdist.bench.burn.start_arm", Arm)
    with pytest.raises(TfdistError, match=f"interrupted by {number.name}") as caught:
        burn({H1: Machine((0,), ()), H2: Machine((0,), ())}, 1.0, lambda _: None)
    assert caught.value.exit_code == 128 + number


def test_one_host_cannot_be_compared():
    with pytest.raises(TfdistError, match="two or more"):
        burn({LOCAL: Machine((0,), ())}, 1.0, lambda _: None)
