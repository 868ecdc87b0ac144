"""Messages that name where a value came from: the environment or a job file instead of the command line."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Source:
    """Where the value of an option came from, if not from the command line."""

    flag: str
    name: str
    """`TFDIST_WORKERS=` or `workers = `."""
    raw: str
    """The value as written there."""
    words: tuple[str, ...]
    """The values that messages may quote."""
    omit: str
    """`unset TFDIST_WORKERS` or `remove workers`."""

    def rename(self, sentence: str) -> str:
        """The sentence with the name for the flag where a value follows the flag, or where it starts the sentence."""
        forms = {*self.words, *map(repr, self.words)}
        longest_first = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        sentence = re.sub(rf"{self.flag} ({longest_first})(?!\w)", lambda match: self.name + match[1], sentence)
        if sentence.startswith(f"{self.flag}:"):  # a flag such as --evaluate
            sentence = f"{self.name}{self.raw}{sentence.removeprefix(self.flag)}"
        return re.sub(rf"\b(drop|omit) {self.flag}(?![\w-])", self.omit, sentence)


def name_sources(sentence: str, ctx: Any) -> str:
    """The sentence with TFDIST_WORKERS=2 or `workers = 2` for `--workers 2` if the environment or a job file set it."""
    for source in _variables(ctx):
        sentence = source.rename(sentence)
    if sentence.startswith("TFDIST_"):
        sentence = re.sub(r"\bomit it\b", "unset it", sentence)
    before = sentence
    for source in _keys(ctx):
        sentence = source.rename(sentence)
    if sentence == before:
        return sentence
    in_file = re.sub(r"\bomit it\b", "remove it", sentence)
    return f"{ctx.params['config']}: {in_file}"


def _variables(ctx: Any) -> Iterator[_Source]:
    for param in _params_from("ENVIRONMENT", ctx):
        raw = os.environ[param.envvar]
        words = (raw, *raw.split(), *_forms(ctx.params.get(param.name)))
        yield _Source(param.opts[0], f"{param.envvar}=", raw, words, f"unset {param.envvar}")


def _keys(ctx: Any) -> Iterator[_Source]:
    for param in _params_from("DEFAULT_MAP", ctx):
        value = ctx.default_map[param.name]
        words = (*value, ",".join(value)) if isinstance(value, list) else (str(value),)
        words += _forms(ctx.params.get(param.name))
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        yield _Source(param.opts[0], f"{param.name} = ", raw, words, f"remove {param.name}")


def _params_from(source: str, ctx: Any) -> list[Any]:
    named = {param: ctx.get_parameter_source(param.name) for param in ctx.command.params}
    return [param for param, origin in named.items() if origin is not None and origin.name == source]


def _forms(value: Any) -> tuple[str, ...]:
    return (str(value), f"{value:g}") if isinstance(value, float) else (str(value),)
