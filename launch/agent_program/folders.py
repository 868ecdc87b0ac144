"""Which folders may hold code, secrets or checkpoints: those that no other user can exchange. Part of the agent."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

MOST_LINKS = 40
"""Links in a path, as in the kernel (man 7 path_resolution)."""
_IN_POD = "KUBERNETES_SERVICE_HOST"
"""Set in every container of a Kubernetes pod."""


class UnsafeFolderError(OSError):
    """Another user could exchange what is in the folder; a sentence with the fix."""


def why_unsafe(path: str, working: str = "") -> str:
    """Why a folder, which may not exist yet, must not hold code, secrets or checkpoints; empty if it may.

    Whoever can rename a folder or a link on the way to a file chooses which file it is. So each folder on the way is
    checked, from / on, those that hold links and those that links lead through included:

    - It belongs to this user or to root.
    - Not every user may write to it. If it is sticky, as /tmp, every user may: there, only its owner and the owner of
      an entry can rename the entry. A link in it must then belong to this user or to root.
    - The members of its group are trusted: they may write to it (umask 002, a volume with fsGroup).
    - So is another owner if its group may write to it and this user is in that group, as in the folder of a project
      that belongs to whoever leads it.

    Three more are trusted, because they can run programs as this user anyway, or look like root to us:

    - For root, the owners of the working folder and of those above it, whose programs root runs there. A container
      often runs as root in a folder of a user of its host (`docker run -v $PWD:/work -w /work`).
    - In a user namespace that does not map all users (rootless containers), the overflow user, to whom all folders of
      users outside belong, those of root outside too. Elsewhere that is the user nobody, who is not trusted.
    - In a Kubernetes pod, the owner of a volume and whoever may write to it: many are created with mode 0777, and who
      may mount one may also run a pod as any user.

    Args:
        path: absolute, or relative to the current folder.
        working: the folder in which tasks run; empty: the current one.

    Returns:
        A sentence that names the folder and the fix, to which a caller adds ", or ..." with another choice.
    """
    trusted = _trusted_users(working)
    groups = {os.getegid(), *os.getgroups()}
    with suppress(OSError, ValueError):  # it cannot be used: whoever tries gets an error that says why
        for folder, status, link in _way(path):
            if not stat.S_ISDIR(status.st_mode):
                break
            if _IN_POD in os.environ and os.path.ismount(folder):
                continue
            shared = status.st_mode & stat.S_IWGRP and status.st_gid in groups
            if status.st_uid not in trusted and not shared:
                fix = "have its owner share it with a group of yours ('chgrp', 'chmod g+w')"
                if os.geteuid() == 0:
                    fix = "run 'chown root' on it, start tfdist in it to trust that user"
                return f"{folder} belongs to user {status.st_uid}, who may rename what is in it; {fix}"
            if not status.st_mode & stat.S_IWOTH:
                continue
            if not status.st_mode & stat.S_ISVTX:
                return f"every user may rename what is in {folder}; run 'chmod o-w' or 'chmod +t' on it"
            if link is not None and link.st_uid not in trusted:
                return f"a link in {folder} belongs to user {link.st_uid}, who may replace it; remove it"
    return ""


def _trusted_users(working: str) -> set[int]:
    users = {0, os.geteuid()}
    with suppress(OSError):
        if os.geteuid() == 0:
            users.update(status.st_uid for _, status, _ in _way(working))
    with suppress(OSError, ValueError):
        with open("/proc/self/uid_map", "rb") as lines:
            mapped = sum(int(line.split()[2]) for line in lines)
        if mapped < (1 << 32) - 1:
            with open("/proc/sys/kernel/overflowuid", "rb") as number:
                users.add(int(number.read()))
    return users


def _way(path: str) -> Iterator[tuple[str, os.stat_result, os.stat_result | None]]:
    """The folders that a path leads through, with their status and, for each link in one, that of the link.

    Ends at the first that does not exist.

    Raises:
        OSError: one cannot be read.
    """
    at, links = "/", 0
    names = (path if path.startswith("/") else os.path.join(os.getcwd(), path)).split("/")[::-1]
    yield at, os.stat(at), None
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        entry = os.lstat(os.path.join(at, name))
        if not stat.S_ISLNK(entry.st_mode):
            at = os.path.dirname(at) if name == ".." else os.path.join(at, name)
            yield at, os.stat(at), None
            continue
        links += 1
        if links > MOST_LINKS:
            return
        yield at, os.stat(at), entry
        target = os.readlink(os.path.join(at, name))
        at = "/" if target.startswith("/") else at
        names += target.split("/")[::-1]


def make_folder(path: str) -> None:
    """Create a folder and the parents that it lacks. The umask decides who may use them, but nobody else may write.

    Raises:
        OSError: that failed. FileExistsError: it is a file.
    """
    parent, name = os.path.split(path.rstrip("/") or "/")
    if name and parent and not os.path.exists(parent):
        make_folder(parent)
    try:
        os.mkdir(path, 0o775)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
