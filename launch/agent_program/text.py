"""Checks of what tasks write. Part of the agent."""

import codecs
import re
from typing import Any

MAX_INTEGER = 1 << 63
"""Integers in messages are below this, and at least its negative: 64 bits hold them."""
LONE_SURROGATE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Half of a UTF-16 character, which no file can hold. U+DC80 to U+DCFF stand for bytes that are not UTF-8."""
MAX_VALUES = 50_000
"""Limit of an event, which takes up to 200 bytes of memory for each value."""
_SEPARATORS = (b",", b"[", b"{")


def end_of_characters(text: bytes) -> int:
    """The length of `text` without an incomplete UTF-8 character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text)
    return len(text) - len(decoder.getstate()[0])


def why_refused(value: Any, levels: int) -> str:
    """Why the launcher refuses a JSON value in a message of an agent; empty if it accepts it. Not recursive.

    Args:
        value: lists, objects, and what they hold.
        levels: of lists and objects, at most.
    """
    level = [value]
    for left in range(levels, -1, -1):
        if any(isinstance(node, int) and not -MAX_INTEGER <= node < MAX_INTEGER for node in level):
            return "an integer in it needs more than 64 bits; send it as text"
        if any(isinstance(node, str) and not node.isascii() and LONE_SURROGATE.search(node) for node in level):
            return "a text in it is not Unicode (it has a lone surrogate)"
        containers = [node for node in level if isinstance(node, (dict, list))]
        if containers and not left:
            return f"it has more than {levels} levels of lists and objects"
        children = ([*node, *node.values()] if isinstance(node, dict) else node for node in containers)
        level = [child for nodes in children for child in nodes]
        if not level:
            break
    return ""


def too_many_values(line: bytes, most: int = MAX_VALUES) -> bool:
    """Whether a text of JSON has more values than `most`, without parsing it: they could fill the memory."""
    if sum(map(line.count, _SEPARATORS)) < most:
        return False
    line = line.replace(rb"\\", b"").replace(rb"\"", b"")
    if line.count(b'"') > 4 * most:  # each text is a value or the name of one
        return True
    outside_texts = b"".join(line.split(b'"')[::2])
    return sum(map(outside_texts.count, _SEPARATORS)) >= most
