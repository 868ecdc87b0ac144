"""Which arms keep XLA's programs between their starts, and in which folder."""

from pathlib import Path

import pytest

from tfdist.bench.xla_cache import FLAGS, temporary, with_cache
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.request import Request
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.machine import Machine

MACHINE = Machine((0, 1), ())
CACHE = '--tf_xla_persistent_cache_directory="/out/xla-cache/0"'


def planned(flags: str | None = None, host: Host = LOCAL, **choices: object) -> Planned:
    environ = {} if flags is None else {FLAGS: flags}
    choices = {"strategy": "multiworker", "workers": 2, "preset": "smoke", "model": "tiny", "xla": True, **choices}
    return plan(Request(choices, environ=environ, paced=True), {host: MACHINE})


def flags_of(arm: Planned, folder: str = "/out/xla-cache/0") -> set[str | None]:
    """The value in each task's environment."""
    job = with_cache(arm, Path(folder)).job
    return {job.environment(plan).get(FLAGS) for plan in job.plans}


def test_every_task_of_an_arm_with_xla_gets_the_folder():
    assert flags_of(planned()) == {CACHE}


def test_flags_of_the_user_are_kept():
    assert flags_of(planned("--tf_xla_auto_jit=2 ")) == {f"--tf_xla_auto_jit=2 {CACHE}"}


@pytest.mark.parametrize("flags", ["--tf_xla_persistent_cache_directory=/mine", "flags.txt"])
def test_a_cache_of_the_user_and_a_file_of_flags_stay(flags):
    assert flags_of(planned(flags)) == {None}, "tasks inherit the user's"


def test_arms_without_xla_and_on_other_hosts_have_no_cache():
    assert flags_of(planned(xla=False)) == {None}
    assert flags_of(planned(host=Host("h1", address="10.0.0.1"))) == {None}
    command = plan(Request({"strategy": "one-device"}, ("true",), environ={}), {LOCAL: MACHINE})
    assert flags_of(command) == {None}


def test_a_folder_may_have_any_name():
    assert flags_of(planned(), '/a "b\\c d') == {r'--tf_xla_persistent_cache_directory="/a \"b\\c d"'}


def test_programs_of_another_run_are_removed_and_none_are_left(tmp_path):
    folder = tmp_path / "xla-cache"
    (folder / "0").mkdir(parents=True)
    with temporary(folder):
        assert not folder.exists()
        (folder / "0").mkdir(parents=True)
    assert not folder.exists()
