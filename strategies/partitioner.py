"""The syntax of --set variable_partitioner: none, fixed:N, min-size:BYTES or max-size:BYTES. No TensorFlow."""

from dataclasses import dataclass

from tfdist.launch.errors import TfdistError

KINDS = ("fixed", "min-size", "max-size")


@dataclass(frozen=True)
class Partitioner:
    """Splits each variable into `size` shards (fixed), or into shards of at least or at most `size` bytes."""

    kind: str
    size: int


def parse_partitioner(text: str) -> Partitioner | None:
    """The partitioner that `text` names; None for `none`.

    Raises:
        TfdistError: `text` has another form.
    """
    if text == "none":
        return None
    kind, _, size = text.partition(":")
    if kind not in KINDS or not (size.isascii() and size.isdecimal() and int(size) > 0):
        raise TfdistError(f"--set variable_partitioner={text}: use none, fixed:N, min-size:BYTES or max-size:BYTES")
    return Partitioner(kind, int(size))
