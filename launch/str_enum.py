"""enum.StrEnum, which Python 3.10 lacks."""

from enum import Enum


class StrEnum(str, Enum):
    """A closed choice whose members are strings and print as their values."""

    __str__ = str.__str__
