"""Folders of several users. Paths lead through a folder of root's that every user can reach."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.launch.agent_program.real_agent import real_agent
from tests.users import GROUP, LEADER, OTHER, US, as_user, make, needs_root, public_folder
from tfdist.launch.agent_program.folders import UnsafeFolderError, make_folder, why_unsafe
from tfdist.launch.agent_program.system import check_folder, temporary_root

pytestmark = needs_root
public = pytest.fixture(public_folder)


def reason(path, user=US, groups=(GROUP,)):
    """What is said about a folder to US."""
    return as_user(user, partial(why_unsafe, str(path)), groups)


@pytest.mark.parametrize(
    ("owner", "group", "mode"),
    [
        (US, US, 0o700),
        (0, 0, 0o755),
        (0, 0, 0o1777),
        (0, GROUP, 0o2775),  # a volume of a pod with fsGroup
        (0, OTHER, 0o2775),  # as root's choice
        (US, US, 0o775),  # umask 002
        (US, US, 0o1777),
        (LEADER, GROUP, 0o2770),  # the folder of a project
        (LEADER, GROUP, 0o3775),
    ],
)
def test_a_folder_that_only_we_root_or_our_group_can_change_is_safe(owner, group, mode, public):
    folder = make(public / "folder", owner, mode, group)
    assert [reason(folder), reason(folder / "new" / "below"), reason(folder / ".." / "folder")] == ["", "", ""]


@pytest.mark.parametrize(
    ("owner", "group", "mode", "why"),
    [
        (US, US, 0o777, "every user may rename what is in {}; run 'chmod o-w' or 'chmod +t' on it"),
        (0, 0, 0o777, "every user may rename what is in {}; run 'chmod o-w' or 'chmod +t' on it"),
        (LEADER, GROUP, 0o2777, "every user may rename what is in {}; run 'chmod o-w' or 'chmod +t' on it"),
        (OTHER, OTHER, 0o755, "{} belongs to user 1235, who may rename what is in it; "),
        (OTHER, OTHER, 0o1777, "{} belongs to user 1235, who may rename what is in it; "),
        (OTHER, OTHER, 0o775, "{} belongs to user 1235, who may rename what is in it; "),
        (LEADER, GROUP, 0o755, "{} belongs to user 1236, who may rename what is in it; have its owner share it "),
        (65534, 65534, 0o755, "{} belongs to user 65534, who may rename what is in it; "),
    ],
)
def test_a_folder_that_another_user_can_change_is_not_nor_is_one_below(owner, group, mode, why, public):
    folder = make(public / "folder", owner, mode, group)
    below = make(folder / "below", US, 0o700)
    for path in (folder, below, below / "new", public / "none" / ".." / "folder"):
        if path.exists() or path.parent.exists():
            assert reason(path).startswith(why.format(folder))


def test_each_folder_that_links_lead_through_counts(public):
    good, bad = make(public / "good", US, 0o700), make(public / "bad", 0, 0o777)
    target = make(bad / "target", US, 0o700)
    (good / "into").symlink_to(target)
    (bad / "out").symlink_to(good)
    (good / "relative").symlink_to("../bad/./out/../good")
    for path in (good / "into", good / "into" / "new", bad / "out", good / "relative"):
        assert reason(path).startswith(f"every user may rename what is in {bad};")
    (good / "loop").symlink_to("loop")
    assert reason(good / "loop") == ""  # opening it fails


def test_a_folder_is_checked_from_a_folder_that_was_deleted(public, monkeypatch):
    folder, gone = make(public / "folder", 0, 0o777), make(public / "gone", 0, 0o755)
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert why_unsafe(str(folder)).startswith(f"every user may rename what is in {folder};")


def test_a_link_in_a_sticky_folder_must_be_ours_or_roots(public):
    good, sticky = make(public / "good", US, 0o700), make(public / "sticky", 0, 0o1777)
    for owner in (US, 0, OTHER):
        link = sticky / str(owner)
        link.symlink_to(good)
        os.chown(link, owner, owner, follow_symlinks=False)
    assert [reason(sticky / str(owner)) for owner in (US, 0)] == ["", ""]
    assert reason(sticky / str(OTHER)) == f"a link in {sticky} belongs to user 1235, who may replace it; remove it"


def test_root_trusts_the_owner_of_the_working_folder_and_nobody_else(public, monkeypatch):
    mine, other = make(public / "mine", US, 0o755), make(public / "other", OTHER, 0o755)
    monkeypatch.chdir(mine)
    assert [why_unsafe("runs"), why_unsafe(str(mine)), why_unsafe(str(other), str(other))] == ["", "", ""]
    what = f"{other} belongs to user 1235, who may rename what is in it"
    assert why_unsafe(str(other)) == f"{what}; run 'chown root' on it, start tfdist in it to trust that user"
    assert as_user(US, partial(why_unsafe, str(other), str(other))).startswith(f"{other} belongs to user 1235")


def test_root_trusts_the_owners_of_the_folders_above_the_working_folder_too(public, monkeypatch):
    """In a container of a CI job they belong to the runner's user, and what is checked out there to root."""
    work = make(public / "work", OTHER, 0o755)
    checkout, temporary = make(work / "checkout", 0, 0o755), make(work / "temporary", OTHER, 0o755)
    monkeypatch.chdir(make(checkout / "sub", 0, 0o755))
    assert [why_unsafe("bench_results"), why_unsafe(str(temporary / "bench"))] == ["", ""]


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_in_a_pod_the_owner_of_a_volume_is_trusted(mode, public, monkeypatch):
    volume = make(public / "volume", OTHER, mode)
    below = make(volume / "saved", US, 0o755)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(volume))
    assert reason(below) != ""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert reason(below) == ""


PROGRAM = "import sys; from tfdist.launch.agent_program.folders import why_unsafe; print(why_unsafe(sys.argv[1]))"


def reason_in(namespace, path, script="", **variables):
    """What is said there about a folder, after a script of the shell; skips where namespaces are not permitted."""
    unshare = ["unshare", *namespace]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip(f"{' '.join(unshare)} is not permitted here")
    command = [*unshare, "sh", "-c", f'{script} exec "$@"', "sh", sys.executable, "-c", PROGRAM, str(path)]
    return subprocess.check_output(command, text=True, cwd="/", env={**os.environ, **variables}).strip()


def test_the_root_of_outside_is_trusted_in_a_user_namespace(public):
    inside, outside = make(public / "inside", 0, 0o755), make(public / "outside", 4000, 0o755)
    namespace = ("--user", "--map-root-user")
    assert [reason_in(namespace, path) for path in (inside, outside)] == ["", ""]
    outside.chmod(0o777)
    assert reason_in(namespace, outside).startswith(f"every user may rename what is in {outside};")


def test_a_volume_of_a_pod_may_be_open_to_all_but_no_folder_in_it(public):
    volume, namespace = make(public / "volume", 0, 0o755), ["--mount"]
    script = f'cd "{volume}" && mount -t tmpfs -o mode=0777 none . && cd "{volume}" && mkdir -m 777 a &&'
    in_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert reason_in(namespace, volume / "new", script, **in_pod) == ""
    assert reason_in(namespace, volume / "a", script, **in_pod).startswith(
        f"every user may rename what is in {volume}/a;"
    )
    assert reason_in(namespace, volume / "new", script).startswith(f"every user may rename what is in {volume};")


def test_folders_are_created_for_us_and_our_group_whatever_the_umask(public):
    before = os.umask(0)
    try:
        make_folder(str(public / "a" / "b/"))
    finally:
        os.umask(before)
    assert [(public / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o775, 0o775]
    make_folder(str(public / "a" / "b"))
    (public / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(str(public / "file"))


def test_a_tmpdir_that_every_user_may_write_to_is_not_used(public, monkeypatch):
    folder, private = make(public / "tmp", 0, 0o777), make(public / "private", US, 0o700)
    monkeypatch.setenv("TMPDIR", str(folder))
    assert as_user(US, temporary_root) == "/tmp"
    for variable in ("XDG_RUNTIME_DIR", "HOME"):
        with monkeypatch.context() as patch:
            patch.setattr(
                "tfdist.launch.agent_program.system.why_unsafe", lambda path: "" if path == str(private) else "no"
            )
            patch.setenv(variable, str(private))
            assert as_user(US, temporary_root) == str(private)


def test_without_a_safe_folder_the_sentence_has_the_fix(public, monkeypatch):
    folder = make(public / "tmp", 0, 0o777)
    monkeypatch.setattr("tfdist.launch.agent_program.system.why_unsafe", lambda path: why_unsafe(str(folder)))
    with pytest.raises(UnsafeFolderError) as refused:
        temporary_root()
    assert str(refused.value) == (
        f"no safe folder for temporary files: every user may rename what is in {folder}; run 'chmod o-w' or 'chmod +t' "
        "on it, or set TMPDIR to one of your own"
    )


def test_another_user_cannot_exchange_the_temporary_folder_of_a_task(public):
    folder = make(public / "tmp", 0, 0o777)
    with real_agent(env={"TMPDIR": str(folder)}) as agent:
        agent.start("import os, time; print(os.environ['TMPDIR'], flush=True); time.sleep(60)")
        agent.wait_for_text("\n")
        used = Path(agent.text().strip())
        assert used.is_dir()
        with pytest.raises(PermissionError):
            as_user(OTHER, partial(os.rename, used, used.with_name(f"{used.name}-taken")))
        assert list(folder.iterdir()) == []


def test_a_checkpoint_folder_of_another_user_is_refused(public):
    other = make(public / "other", OTHER, 0o755)
    path = make(other / "checkpoints", US, 0o700)
    for action in ("write", "read"):
        reason = as_user(US, partial(check_folder, str(path), "token", action))
        assert reason.startswith(f"is not safe: {other} belongs to user 1235, who may rename what is in it; ")
    assert list(path.iterdir()) == []
