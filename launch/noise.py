"""Lines that TensorFlow's C++ code logs in every process."""

import re
from collections.abc import Iterable, Iterator

NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions:"
    r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]"
    r"|E\d{4} \d\d:\d\d:\d+\.\d+ +\d+ cuda_\w+\.cc:\d+\] failed call to cuInit"
    r"|/job:\w+/replica:\d+/task:\d+$"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(cc|h):\d+\]"
)
"""Start of the lines that TensorFlow's C++ code logs on start-up. Only the log files keep them; errors are printed."""
LOG_LINE = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]|\d{4}-\d\d-\d\d .{15,} [IWEF] \S+\.(cc|h):"
)
"""Start of any line that TensorFlow's C++ code logs."""
_OPTIONS = re.compile(r"[IW]\d{4} .*\] SessionOptions:")
_OPTION = re.compile(r"\w+ \{$|\w+: \S+$|\s+\S|\}$|$")
"""A line of the protocol buffer that follows."""


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Leave out `NOISE`, and the session options that TensorFlow's servers log as a block of lines."""
    in_options = False
    for line in lines:
        in_options = bool(_OPTIONS.match(line) or (in_options and _OPTION.match(line)))
        if not in_options and not NOISE.match(line):
            yield line
