import threading

from tfdist.launch.inherit.rendezvous import NameSearch, is_known


def test_names_are_looked_up_until_all_are_known():
    lookups = []

    def known_later(host):
        lookups.append(host)
        return lookups.count(host) > {"a": 0, "b": 1}[host]

    search = NameSearch({"worker-0": "a", "worker-1": "b"}, threading.Event(), known_later)
    search.run()
    assert lookups == ["a", "b", "b"]
    assert search.missing == {}


def test_a_search_that_is_stopped_ends():
    stop = threading.Event()
    search = NameSearch({"worker-0": "a"}, stop, lambda _: stop.set())
    search.run()
    assert search.missing == {"worker-0": "a"}


def test_names_and_addresses_of_this_machine_are_known():
    assert is_known("localhost")
    assert is_known("127.0.0.1")
    assert not is_known("no-such-host.invalid")
    assert not is_known("a" * 64 + ".invalid")  # no valid DNS name: a label has at most 63 characters
