"""The command line that a process carries out."""

from concurrent.futures import ThreadPoolExecutor

from tfdist.launch.this_command import carried_out, this_command


def test_it_is_what_the_entry_got_in_every_thread(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/train.py", "--fast"])
    with carried_out(["tfdist", "bench"]), ThreadPoolExecutor(1) as pool:
        assert this_command() == pool.submit(this_command).result() == ["tfdist", "bench"]


def test_of_a_program_that_calls_tfdist_it_is_that_of_the_program(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/train.py", "--fast"])
    assert this_command() == ["train.py", "--fast"]
