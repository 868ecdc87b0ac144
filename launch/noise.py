"""Lines that TensorFlow's C++ code logs in every process."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions:"
    r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]"
    r"|E\d{4} \d\d:\d\d:\d+\.\d+ +\d+ cuda_\w+\.cc:\d+\] failed call to cuInit"
    r"|/job:\w+/replica:\d+/task:\d+$"
    r"|\S+: \(\w+\): /job:\S+$"  # where an operation is placed, on stdout; stderr has it with a prefix
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(cc|h):\d+\]"
)
"""Start of the lines that TensorFlow's C++ code logs on start-up. Only the log files keep them; errors are printed."""
_FIRST = "WTIE/0123456789"
"""First characters of these lines, except of placed operations: quicker to check."""
_PLACED = "): /job:"
LOG_LINE = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]|\d{4}-\d\d-\d\d .{15,} [IWEF] \S+\.(cc|h):"
)
"""Start of any line that TensorFlow's C++ code logs."""
_OPTIONS = re.compile(r"[IW]\d{4} .*\] SessionOptions:")
_OPTION = re.compile(r"\w+ \{$|\w+: \S+$|\s+\S|\}$")
"""A line of the protocol buffer that follows, up to an empty line."""


@dataclass
class NoiseFilter:
    """Leaves out `NOISE`, and the session options that TensorFlow's servers log as a block of lines."""

    in_options: bool = False
    """The last line was one of such a block."""

    def keep(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines that are not noise, of those that follow."""
        suspects = (line for line in lines if line[:1] in _FIRST or _PLACED in line)
        if not self.in_options and not any(map(NOISE.match, suspects)):
            return lines
        return [line for line in lines if not self._is_noise(line)]

    def _is_noise(self, line: str) -> bool:
        if self.in_options:
            self.in_options = _OPTION.match(line) is not None
            if self.in_options or not line:
                return True
        self.in_options = _OPTIONS.match(line) is not None
        return NOISE.match(line) is not None
