"""Regular expressions over what hosts and tasks print: none may need more than linear time."""

import re
import time
from itertools import accumulate

import pytest

from tfdist.launch import tensorflow_output
from tfdist.launch.agents import connect
from tfdist.launch.diagnosis import behind, evidence, history
from tfdist.launch.diagnosis.behind import Frame, stacks_of
from tfdist.launch.diagnosis.history import OutputLine
from tfdist.launch.hosts import transport
from tfdist.launch.hosts.host import Host
from tfdist.launch.supervision import restarts

SIZE = 1 << 16
"""Characters of a text. A quadratic expression needs more than 1 s for one of them, a linear one some ms."""
FAULTS = (*transport.SLOW_FAULTS, *transport.SSH_FAULTS, *transport.FAULTS)
PATTERNS = (
    *(fault[0] for fault in FAULTS),
    *(each.pattern for each in tensorflow_output.INCOMPATIBILITIES),
    *(
        value.pattern
        for module in (tensorflow_output, restarts, connect, evidence, behind, history)
        for value in vars(module).values()
        if isinstance(value, re.Pattern)
    ),
)


def fragments(pattern):
    """Texts that match beginnings of an expression, more or less."""
    sample = re.sub(r"\(\?[a-z]+\)|\(\?(?:P<\w+>|[:=!])|[()^$]|\\b", "", pattern)
    sample = re.sub(r"\\([][.():{}/])", r"\1", re.sub(r"\\[wd]|\[[^]]*\]", "1", sample).replace(r"\S", "a"))
    parts = [part for part in re.split(r"\.?[*+?]|\{[0-9,]+\}|\||\\s", sample) if part]
    return dict.fromkeys([*accumulate(parts), "AbortedError ", "Thread 0x", "    a ("])


TEXTS = list(
    dict.fromkeys(
        text
        for pattern in PATTERNS
        for part in fragments(pattern)
        for text in (part * (SIZE // len(part)), part + part[-1] * SIZE)
    )
)
READERS = (
    lambda text: transport.connection_problem(Host("h1", prefix=("ssh", "--", "h1"), needs_quoting=True), text),
    tensorflow_output.hints,
    evidence.is_peer_failure,
    lambda text: evidence.named_peers(text, "worker-0"),
    lambda text: evidence.raised([OutputLine(1.0, line) for line in ("Traceback (most recent call last):", "", text)]),
    lambda text: evidence.raised([OutputLine(1.0, text)]),
    lambda text: evidence.ErrorText("ValueError", text, 1.0).headline,
    lambda text: tensorflow_output.NoiseFilter(in_block=True).keep(["W0000 ] SessionOptions:", text]),
    lambda text: tensorflow_output.NoiseFilter().keep([text]),
    tensorflow_output.LOG_LINE.match,
    restarts.OUT_OF_MEMORY.search,
    connect.OVERLOADED.search,
    stacks_of,
    lambda text: stacks_of(f"Thread 0x1 (most recent call first):\n{text}\n"),
    lambda text: Frame("f", text, "1").in_standard_library,
)


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_the_time_for_a_text_of_a_host_is_linear(read):
    for text in TEXTS:
        started = time.thread_time()
        read(text)
        assert time.thread_time() - started < 1.0, text[:80]


def test_the_texts_hit_the_patterns():
    assert len(TEXTS) > 100
    assert sum(any(re.search(pattern, text[:300]) for text in TEXTS) for pattern in PATTERNS) > len(PATTERNS) / 2
