import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import place, slots_of

H1, H2, H3 = (Host(name) for name in ("h1", "h2", "h3"))
PS1, PS2, CHIEF, WORKER = (Host("p1", role="ps"), Host("p2", role="ps"), Host("c", role="chief"), Host("w", role="worker"))  # fmt: skip


def placed(roles, slots):
    return {task.name: host.name for task, host in place(roles, slots).items()}


def test_workers_fill_hosts_in_order():
    assert placed({"worker": 3}, {H2: 2, H1: 2}) == {"worker-0": "h2", "worker-1": "h2", "worker-2": "h1"}


def test_a_host_without_a_slot_limit_takes_all_tasks():
    assert placed({"chief": 1, "worker": 3, "ps": 2}, {LOCAL: None}) == dict.fromkeys(
        ["chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1"], "localhost"
    )


def test_without_role_hosts_the_chief_is_on_the_first_and_servers_take_turns():
    assert placed({"chief": 1, "worker": 2, "ps": 3, "evaluator": 1}, {H1: 1, H2: 1}) == {
        "chief-0": "h1", "worker-0": "h1", "worker-1": "h2", "ps-0": "h1", "ps-1": "h2", "ps-2": "h1", "evaluator-0": "h1",
    }  # fmt: skip


def test_a_host_with_a_role_takes_only_that_role():
    slots = {PS1: 1, H1: 2, CHIEF: 1, PS2: 1}
    assert placed({"chief": 1, "worker": 2, "ps": 2}, slots) == {
        "chief-0": "c", "worker-0": "h1", "worker-1": "h1", "ps-0": "p1", "ps-1": "p2",
    }  # fmt: skip


def test_worker_hosts_and_hosts_without_role_are_filled_in_order():
    assert placed({"worker": 3}, {H1: 1, WORKER: 1, H2: 1}) == {"worker-0": "h1", "worker-1": "w", "worker-2": "h2"}


@pytest.mark.parametrize(
    ("roles", "slots", "expected"),
    [
        ({"worker": 5}, {H1: 2, H2: 2}, ["5 worker tasks", "4 slots", "h1:2, h2:2", "--workers-per-host"]),
        ({"worker": 1}, {PS1: 1}, ["role=ps", "no ps"]),
        ({"chief": 1, "worker": 1, "ps": 3}, {H1: 1, PS1: 1, PS2: 1}, ["3 ps tasks", "2 slots", "p1:1, p2:1"]),
        ({"chief": 1, "worker": 1, "ps": 1}, {PS1: 1, WORKER: 1}, ["no host accepts a chief", "role=chief"]),
        ({"chief": 1, "worker": 1, "ps": 1}, {CHIEF: 1, PS1: 1}, ["1 worker task ", "0 slots", "no host"]),
        ({"worker": 2}, {H1: 2, H2: 1, H3: 1}, ["no task for h2, h3", "--exclude"]),
        ({"worker": 2}, {H1: 1, H2: 1, CHIEF: 1}, ["c has role=chief", "no chief"]),
    ],
)
def test_tasks_that_do_not_fit_are_refused(roles, slots, expected):
    with pytest.raises(TfdistError) as caught:
        place(roles, slots)
    for text in expected:
        assert text in str(caught.value)


@given(
    numbers=st.lists(st.integers(1, 10**9), min_size=1, max_size=6),
    workers=st.integers(1, 50),
)
def test_every_worker_has_a_slot_and_hosts_are_never_overfilled(numbers, workers):
    slots = {Host(f"h{index}"): number for index, number in enumerate(numbers)}
    try:
        found = place({"worker": workers}, slots)
    except TfdistError:
        filled = [sum(numbers[:at]) for at in range(len(numbers))]
        assert sum(numbers) < workers or any(before >= workers for before in filled)
        return
    assert list(found) == [Task("worker", index) for index in range(workers)]
    hosts = list(found.values())
    assert all(hosts.count(host) <= slots[host] for host in slots)
    assert hosts == sorted(hosts, key=list(slots).index)


@pytest.mark.parametrize(
    ("host", "gpus", "per_host", "devices", "slots"),
    [
        (Host("h"), 0, None, 1, 1),
        (Host("h"), 8, None, 1, 8),
        (Host("h"), 8, None, 4, 2),
        (Host("h"), 1, None, 4, 1),
        (Host("h"), 8, 2, 1, 2),
        (Host("h", slots=3), 8, None, 1, 3),
        (Host("h", slots=3), 8, 3, 1, 3),
        (Host("h", role="worker"), 0, 2, 1, 2),
        (Host("h", role="ps"), 8, 4, 1, 1),
        (Host("h", role="ps", slots=2), 8, 4, 1, 2),
    ],
)
def test_number_of_slots(host, gpus, per_host, devices, slots):
    assert slots_of(host, gpus, per_host, devices) == slots
