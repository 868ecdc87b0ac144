"""Numbers, lists of names, suggestions, and texts of others in messages."""

import os
import re
import signal
from collections.abc import Iterable
from difflib import get_close_matches

from tfdist.launch.errors import TfdistError

CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Set of a regular expression: the characters that a terminal obeys instead of showing them, except newline and tab.
Those above U+0100 break lines or change the order of the text."""
ESCAPES = (  # ECMA-48, 5.4 and 8.3.89, ECMA-35, 13.2; unterminated ones, too
    r"\x1b\[(?P<value>[0-?]*)[ -/]*(?P<command>[@-~]?)"
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)
"""Regular expression: control sequences, strings such as titles, and other escapes."""
_UNSHOWN = re.compile(f"{ESCAPES}|[{CONTROLS}]")
_CONTROL = re.compile(f"[{CONTROLS}]")
_ASCII_CONTROLS = bytes(code for code in range(128) if _CONTROL.match(chr(code)))
_SURROGATE = re.compile("[\ud800-\udfff]")
KEPT_CHARACTERS = 8192
"""Characters of a line that overwrites itself; what came before is overwritten, or is too long for any terminal."""
_TOKEN = re.compile(rf"{ESCAPES}|(?P<move>[\r\b])|(?P<text>[^{CONTROLS}]+)|[{CONTROLS}]")
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")  # others with an m are commands, as \x1b[>4m
RESET = "\x1b[0m"


def has_controls(text: str) -> bool:
    """Whether a terminal would obey something in the text, other than newlines and tabs. Fast for plain text."""
    if text.isascii():
        data = text.encode()
        return len(data.translate(None, _ASCII_CONTROLS)) < len(data)
    return not text.replace("\n", "").isprintable() and _CONTROL.search(text) is not None


def plain(text: str) -> str:
    """The text without control characters, except newlines and tabs: a terminal shows all of it."""
    return _UNSHOWN.sub("", text) if has_controls(text) else text


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of bytes that are not UTF-8, and of other lone surrogates."""
    return text if is_utf8(text) else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def shorten(line: str) -> str:
    """A line that overwrites itself without its first states."""
    start = line.find("\r", len(line) - KEPT_CHARACTERS) if len(line) > KEPT_CHARACTERS else 0
    return line[max(0, start) :]


def visible(line: str, colors: bool) -> str:
    """The characters of a line once all carriage returns, backspaces and erasures are done. Other moves are dropped.

    Args:
        line: without its newline.
        colors: keep colors and other attributes, and reset them at the end.
    """
    if not has_controls(line):
        return line
    cells: list[str] = []
    column, attributes = 0, ""
    for token in _TOKEN.finditer(shorten(line)):
        if text := token["text"]:
            cells += " " * (column - len(cells))
            cells[column : column + len(text)] = [attributes + text[0], *text[1:]]
            column += len(text)
            attributes = ""
        elif token["move"]:
            column = 0 if token["move"] == "\r" else max(0, column - 1)
        elif colors and _COLOR.fullmatch(token[0]):
            attributes += token[0]
        elif token["command"] == "K":
            cells[column if token["value"] in ("", "0") else 0 :] = []
    text = "".join(cells).rstrip()
    return text + RESET if "\x1b" in text else text


def check_name(source: str, text: str) -> None:
    """Refuse control characters in a name or another short text of a user, which is part of scripts and messages.

    Args:
        source: names the text in the message, as `--name`.
        text: the value.

    Raises:
        TfdistError: it has one, newlines and tabs included.
    """
    if has_controls(text) or "\n" in text or "\t" in text:
        raise TfdistError(f"{source} {text!r}: has a line break or another control character; remove it")


def is_utf8(text: str) -> bool:
    """Whether it can be encoded: bytes of an argument or a variable that are not UTF-8 are lone surrogates in it."""
    return text.isascii() or _SURROGATE.search(text) is None


def is_path(text: str) -> bool:
    """Whether the system takes it for a path: without a NUL, and without surrogates that stand for no byte."""
    try:
        return 0 < len(text) < 4096 and b"\0" not in os.fsencode(text)
    except ValueError:
        return False


def shortened(names: Iterable[str], most: int = 4, between: str = ", ") -> str:
    """`a, b, c`, each name once; of more than `most` the first ones and how many more: `a, b, c, d and 5 more`."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return between.join(every[:most]) + more


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; of more than 4 the first ones and how many more, as `shortened`."""
    every = list(names)
    if len(every) > 4:
        return shortened(every)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet_text(text: str) -> str:
    """The text as a cell of a CSV file: one that a spreadsheet would compute gets a ' before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def last_line(text: str) -> str:
    """The last line of a text, without space around it; empty if the text is."""
    return text.strip().rpartition("\n")[2].strip()


def one_line(text: str) -> str:
    """A text of others as part of a message in one line: they cannot start a line that looks like one of ours."""
    return " ".join(text.splitlines()).replace("\t", " ")


def counted(number: int, noun: str) -> str:
    """`1 round`, `3 rounds`, `12,345 rounds`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float) -> str:
    """`5%`, `2.5%` or `99.5%` of a share, 0..1."""
    return f"{100 * share:.3g}%"


def duration(seconds: float) -> str:
    """`48 s`, `12 min` or `1 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def ago(seconds: float) -> str:
    """`5 min ago`, in the largest unit that fits."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def signal_name(number: int) -> str:
    """`SIGTERM`; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def did_you_mean(value: str, choices: Iterable[str], most: int = 99) -> str:
    """How to fix an unknown `value`: `did you mean ring? Choose from auto, ring, nccl`, or only `most` choices."""
    known = list(choices)
    nearest = get_close_matches(value.casefold(), known, n=1)
    hint = f"did you mean {nearest[0]}? Choose" if nearest else "choose"
    return f"{hint} from {shortened(known, most)}"
