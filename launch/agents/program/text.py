"""Checks of what tasks write. Part of the agent."""

from typing import Any

UTF8_LENGTHS = ((0xF5, 1), (0xF0, 4), (0xE0, 3), (0xC2, 2), (0, 1))
"""Bytes of a character from this first byte on. 0xF5 to 0xFF, 0xC0 and 0xC1 are in no UTF-8 text."""


def end_of_characters(text: bytes) -> int:
    """The length of `text` without an incomplete UTF-8 character at its end."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            length = next(length for first, length in UTF8_LENGTHS if byte >= first)
            return len(text) - back if length > back else len(text)
    return len(text)


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects in a JSON value are nested more than `levels` deep. Not recursive."""
    level = [value]
    for _ in range(levels + 1):
        if not level:
            return False
        containers = [
            node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))
        ]
        level = [child for container in containers for child in container]
    return bool(level)
