"""The objects of a manifest as YAML in which Go and Python read every string as a string.

PyYAML leaves 1e-3, 0o17 and y without quotes: they are strings in its YAML. For kubectl they are numbers and a boolean
(https://pkg.go.dev/sigs.k8s.io/yaml), which no argument and no variable may be.
"""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import is_utf8

_WORD = re.compile(r"(--)?[A-Za-z/][\w./:-]*", re.ASCII)
_VALUES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that are booleans or null for some reader, in lower case."""


def to_yaml(objects: Sequence[Any]) -> str:
    """A document for each object, of JSON values. A string is one line, in quotes unless it is plainly a word.

    Raises:
        TfdistError: a string is not UTF-8.
    """
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=float("inf"), allow_unicode=True
    )


class _Dumper(yaml.SafeDumper):
    """Writes strings as `_string` does."""


def _string(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Style of the quotes; None: without. Only double quotes have escapes."""
    if not is_utf8(text):
        raise TfdistError(f"{text!r}: not valid UTF-8; use UTF-8, as Kubernetes accepts nothing else")
    if _WORD.fullmatch(text) and text.lower() not in _VALUES:
        return None
    return "'" if text.isprintable() and "'" not in text else '"'


_Dumper.add_representer(str, _string)
