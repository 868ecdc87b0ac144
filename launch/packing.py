"""Packs a folder for its way to other hosts (`--copy`): which of its files travel, and one archive of them."""

import gzip
import io
import os
import stat
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from pathspec import GitIgnoreSpec

from tfdist.launch.errors import TfdistError
from tfdist.launch.git import git
from tfdist.launch.program_copy import IGNORE_FILE, Origin, ProgramCopy, decimal, largest, shown

LIMIT = 64 << 20
"""Bytes of the archive."""
MOST_FILES = 20_000
"""Each costs every host about 0.1 ms."""
_MOST_RATIO = 16
"""Files that are larger than the limit times this together are refused unread: few compress better."""
_LEVEL = 3
"""The level of gzip: program text is a few percent larger than with the best one, and 64 MiB take a second."""
_RESULTS = ("launcher.json", "bench.json")
"""Files of a run and of a bench, of which nothing travels."""
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_Member = tuple[tarfile.TarInfo, bytes]
"""What a tar says of a file, and its content."""


def pack(folder: str, limit: int = LIMIT, *, with_archive: bool = True) -> ProgramCopy:
    """The copy of a folder as it is now.

    In a git repository the files that git tracks, and others that it does not ignore; elsewhere all but hidden ones and
    `__pycache__`. Never what `.tfdistignore` names, and runs and benches of tfdist.

    Args:
        folder: the folder.
        limit: bytes of the archive at most.
        with_archive: False: for a dry run; the files are not read, and the digest is empty.

    Raises:
        TfdistError: something in the folder cannot travel, or it is too large; the sentence names it.
    """
    root = Path(os.path.abspath(folder))  # noqa: PTH100 - keeps links
    source = _Source(root, folder, limit)
    if not root.is_dir():
        raise source.refusal("no such folder", "give another; for the current one write --copy -- COMMAND")
    entries = sorted(source.entries())
    sizes = {name: status.st_size if stat.S_ISREG(status.st_mode) else 0 for name, status in entries}
    source.sizes = sizes
    size = sum(sizes.values())
    if size > _MOST_RATIO * limit:
        raise source.too_large(f"{decimal(size)}, and compressed")
    archive, digest = b"", ""
    if with_archive:
        try:
            archive, digest = _tar(source.members(entries), limit)
        except _TooLargeError:
            raise source.too_large() from None
    commit, changed = _version(root)
    return ProgramCopy(Origin(str(root), len(entries), size, digest, commit, changed), sizes, archive)


def read_copy(path: Path, origin: Origin) -> ProgramCopy:
    """The copy that a run has kept.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no archive.
    """
    archive = path.read_bytes()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as stream:
            while stream.read(1 << 20):  # a damaged one raises at its end
                pass
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            return ProgramCopy(origin, {member.name: member.size for member in members}, archive)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(str(error)) from None


def with_files(archive: bytes, files: Mapping[str, bytes]) -> bytes:
    """An archive with these files, too; they replace those that have the first folder of their names."""
    replaced = {name.partition("/")[0] for name in files}

    def members() -> Iterator[_Member]:
        if archive:
            with tarfile.open(fileobj=io.BytesIO(archive)) as old:
                for member in old:
                    file = old.extractfile(member) if member.isreg() else None
                    if member.name.partition("/")[0] not in replaced:
                        yield member, b"" if file is None else file.read()
        for name, content in files.items():
            yield tarfile.TarInfo(name), content

    return _tar(members(), sys.maxsize)[0]


@dataclass
class _Source:
    """A folder that travels."""

    root: Path
    option: str
    """The folder as it was given."""
    limit: int
    """Bytes of the archive."""
    found: Counter[str] = field(default_factory=Counter)
    """Files below each entry of the folder."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each file, once they are known."""

    def refusal(self, what: str, fix: str) -> TfdistError:
        """A sentence about the folder."""
        return TfdistError(f"--copy {shown(self.option)}: {what}; {fix}")

    def too_large(self, what: str = "compressed") -> TfdistError:
        """A sentence that names the largest files."""
        fix = f"name those that hosts do not need in {IGNORE_FILE}, or allow more with --set copy_limit=SIZE"
        files = f"the largest files are {largest(self.sizes)}"
        return self.refusal(f"{what} more than {decimal(self.limit)} (copy_limit); {files}", fix)

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Each file or link, relative to the folder, with its own status.

        Raises:
            TfdistError: one cannot travel, or they are too many.
        """
        for name in self._names(""):
            if self._ignored(name) or any(self._has_results(str(parent)) for parent in list(Path(name).parents)[:-1]):
                continue
            try:
                status = (self.root / name).lstat()
            except (FileNotFoundError, NotADirectoryError):  # git tracks it, but it, or its folder, was removed
                continue
            self._check(name, status)
            yield name, status

    def _ignored(self, name: str) -> bool:
        return bool(self._ignore_spec.match_file(name))

    @cached_property
    def _ignore_spec(self) -> GitIgnoreSpec:
        try:
            text = Path(self.root, IGNORE_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, ValueError) as error:
            raise self.refusal(f"{IGNORE_FILE} cannot be read ({error})", "correct it") from None
        return GitIgnoreSpec.from_lines(text.splitlines())

    @cached_property
    def _has_results(self) -> Callable[[str], bool]:
        return cache(lambda part: any(os.path.lexists(self.root / part / name) for name in _RESULTS))

    def _names(self, part: str) -> Iterator[str]:
        """The names below a part of the folder, in a git repository as git lists them."""
        at = self.root / part
        tracked = git("ls-files", "-z", "--cached", folder=at)
        if "dubious ownership" in tracked.stderr:
            fix = f"run 'git config --global --add safe.directory {shown(str(at))}' if you trust its owner"
            raise self.refusal("git refuses this repository of another user", fix)
        others = git("ls-files", "-z", "--others", "--exclude-standard", folder=at)
        names = dict.fromkeys(filter(None, (tracked.stdout + others.stdout).split("\0")))  # a conflict has it thrice
        if not names:  # no repository, or one that ignores this folder
            yield from self._walk(part)
        for name in names:
            path = self.root / part / name
            inside = str(path.relative_to(self.root))
            if path.is_dir() and not path.is_symlink():  # a submodule, or another repository
                yield from self._names(inside)
            else:
                yield inside

    def _walk(self, part: str) -> Iterator[str]:
        """The names below a part that is no git repository: nothing hidden, and no byte code."""
        try:
            inside = sorted((self.root / part).iterdir())
        except OSError as error:
            raise self._unreadable(part, error) from None
        for path in inside:
            name = str(path.relative_to(self.root))
            if path.name.startswith(".") or path.name == "__pycache__":
                continue
            if path.is_symlink() or not path.is_dir():
                yield name
            elif not self._ignored(f"{name}/") and not self._has_results(name):
                yield from self._walk(name)

    def _check(self, name: str, status: os.stat_result) -> None:
        """Refuse what cannot travel."""
        self.found[name.partition("/")[0]] += 1
        if self.found.total() > MOST_FILES:
            (part, number), *_ = self.found.most_common(1)
            what = f"more than {MOST_FILES:,} files, {number:,} of them in {shown(part)}"
            raise self.refusal(what, f"name what hosts do not need in {IGNORE_FILE}")
        if stat.S_ISLNK(status.st_mode):
            target = str((self.root / name).readlink())
            if not self._is_inside(name, target):
                what = f"{shown(name)} is a link out of the folder, to {shown(target)}"
                raise self.refusal(what, f"replace it by what it names, or name it in {IGNORE_FILE}")
        elif not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            what = f"{shown(name)} is {kind}, which cannot travel"
            raise self.refusal(what, f"remove it, or name it in {IGNORE_FILE}")

    def _is_inside(self, name: str, target: str) -> bool:
        """Whether a link leads to a place in the folder, by its text and by what it names now."""
        by_text = os.path.normpath(Path(name).parent / target)
        real, root = os.path.realpath(self.root / name), os.path.realpath(self.root)
        return by_text.partition("/")[0] not in ("", "..") and f"{real}/".startswith(f"{root}/")

    def _unreadable(self, name: str, error: OSError) -> TfdistError:
        what = f"{shown(name)} cannot be read ({error.strerror})"
        return self.refusal(what, f"make it readable, or name it in {IGNORE_FILE}")

    def members(self, entries: Sequence[tuple[str, os.stat_result]]) -> Iterator[_Member]:
        """The entries with what they hold now."""
        for name, status in entries:
            member, path = tarfile.TarInfo(name), self.root / name
            member.mode, member.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
            try:
                if stat.S_ISLNK(status.st_mode):
                    member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
                    yield member, b""
                else:
                    yield member, _content(path)
            except OSError as error:
                raise self._unreadable(name, error) from None


class _TooLargeError(Exception):
    """An archive is larger than it may be."""


def _tar(members: Iterable[_Member], limit: int) -> tuple[bytes, str]:
    """A compressed tar, and the digest of what is in it.

    Raises:
        _TooLargeError: it has more bytes than the limit.
    """
    buffer, digest = io.BytesIO(), sha256()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_LEVEL, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, content in members:
            member.size = len(content)
            for part in (os.fsencode(member.name), b"%o" % member.mode, os.fsencode(member.linkname), content):
                digest.update(b"%d:%s" % (len(part), part))
            archive.addfile(member, io.BytesIO(content))
            if buffer.tell() > limit:
                raise _TooLargeError
    if buffer.tell() > limit:
        raise _TooLargeError
    return buffer.getvalue(), digest.hexdigest()


def _content(path: Path) -> bytes:
    # what has become a link or a FIFO is not followed, nor waited for
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _version(root: Path) -> tuple[str, bool]:
    """The git commit of a folder, and whether the folder differs from it; empty without a repository or a commit."""
    commit = git("rev-parse", "--verify", "--quiet", "HEAD", folder=root)
    if commit.returncode:
        return "", False
    return commit.stdout.strip(), bool(git("status", "--porcelain", "--", ".", folder=root).stdout)
