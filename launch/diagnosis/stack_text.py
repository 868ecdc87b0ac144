"""Reads the stacks of a task's threads, as faulthandler or py-spy writes them. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PROCESS = re.compile(r"--- \S+ process \d+, from ")
"""The line before the stacks of each process."""
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+\b.*\(most recent call first\):$|Thread (?:0x)?\w+ \(.*\)")
"""The line before the frames of a thread: of faulthandler, or of py-spy."""
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_SPY_FRAME = re.compile(r"    (?P<name>\S.*) \((?P<file>(?:(?! \().)*):(?P<line>\d+)\)")
_SPY_MAIN = ': "MainThread"'
_CUT = "..."
"""faulthandler leaves out the oldest of more than 100 threads, which include the main thread."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/")
_STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|/lib/python3\d*\.zip/|<frozen ")
_TENSORFLOW = re.compile(r"/(?:site|dist)-packages/(?:tensorflow|tf_keras|keras)/")
_BARRIER = ("/tfdist/launch/events.py", "wait_at_barrier")


@dataclass(frozen=True)
class Frame:
    """A call on a stack."""

    function: str
    file: str
    line: str

    @property
    def in_standard_library(self) -> bool:
        """Whether it is in a module of Python itself."""
        return _STANDARD_LIBRARY.search(self.file) is not None

    @property
    def in_program(self) -> bool:
        """Whether it is in the user's program or in tfdist, not in a package."""
        return not self.in_standard_library and _LIBRARY.search(self.file) is None

    @property
    def in_tensorflow(self) -> bool:
        """Whether it is in TensorFlow or Keras, or where tfdist waits for the other tasks."""
        file, function = _BARRIER
        return _TENSORFLOW.search(self.file) is not None or (self.file.endswith(file) and self.function == function)

    def words(self, folder: str) -> str:
        """`load() at train.py:12`; files in `folder` are relative to it."""
        file = self.file.removeprefix(f"{folder}/")
        function = self.function if self.function.startswith("<") else f"{self.function}()"
        return f"{function} at {_LIBRARY.split(file)[-1]}:{self.line}"


@dataclass(frozen=True)
class Stack:
    """The frames of a thread, the innermost first, and its lines."""

    frames: tuple[Frame, ...]
    lines: tuple[str, ...]
    main: bool

    @property
    def position(self) -> Frame | None:
        """The innermost frame that is not in the standard library; None: all are."""
        return next((frame for frame in self.frames if not frame.in_standard_library), None)

    @property
    def caller(self) -> Frame | None:
        """The innermost frame in the program; None without one."""
        return next((frame for frame in self.frames if frame.in_program), None)

    @property
    def in_tensorflow(self) -> bool:
        """The thread executes or waits for something in TensorFlow."""
        return self.position is not None and self.position.in_tensorflow

    @property
    def is_callback(self) -> bool:
        """TensorFlow has called a function of the program, which has not returned (tf.py_function, a generator)."""
        called = any(frame.in_tensorflow for frame in self.frames)
        return called and self.position is not None and not self.position.in_tensorflow


def stacks_of(text: str) -> list[Stack]:
    """The stacks in a text, the main thread's first; of several processes, those of the first. Empty without any."""
    blocks = list(_blocks(text))
    if not blocks:
        return []
    main = next((at for at, (header, _) in enumerate(blocks) if header.endswith(_SPY_MAIN)), None)
    if main is None and any(_CUT in lines for _, lines in blocks):
        main = next((at for at, (header, _) in enumerate(blocks) if header.startswith("Current")), None)
    main = len(blocks) - 1 if main is None else main  # faulthandler lists the newest thread first
    stacks = [Stack(tuple(_frames(lines)), (header, *lines), at == main) for at, (header, lines) in enumerate(blocks)]
    return sorted((stack for stack in stacks if stack.frames), key=lambda stack: not stack.main)


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each thread's header and lines."""
    block: tuple[str, list[str]] | None = None
    for line in text.splitlines():
        if _PROCESS.match(line):
            if block is not None:
                break
        elif _THREAD.match(line):
            if block is not None:
                yield block
            block = (line, [])
        elif block is not None and line:
            block[1].append(line)
    if block is not None:
        yield block


def _frames(lines: list[str]) -> Iterator[Frame]:
    for match in filter(None, (_FRAME.fullmatch(line) or _SPY_FRAME.fullmatch(line) for line in lines)):
        yield Frame(match["name"], match["file"], match["line"])
