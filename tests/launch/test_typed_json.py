from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.str_enum import StrEnum
from tfdist.launch.typed_json import Between, MaxLength, from_json, parse_json


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    code: Annotated[int, Between(-64, 255)]
    color: Color = Color.RED


@dataclass(frozen=True)
class Outer:
    name: str
    inner: tuple[Inner, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    pair: tuple[str, int] = ("", 0)
    extra: Mapping[str, Any] = field(default_factory=dict)
    short: Annotated[str, MaxLength(3)] = ""


class Host(TypedDict):
    cores: tuple[int, ...]
    driver: str


def test_a_dataclass_with_all_kinds_of_fields() -> None:
    values = {
        "name": "a",
        "inner": [{"code": -9, "color": "red"}],
        "by_name": {"x": 1},
        "limit": None,
        "stream": "stderr",
        "pair": ["h1", 2],
        "extra": {"any": [1, {"deep": None}]},
        "unknown": 1,
    }
    assert from_json(values, Outer) == Outer(
        "a", (Inner(-9),), {"x": 1.0}, None, "stderr", ("h1", 2), {"any": [1, {"deep": None}]}
    )


def test_a_typed_dict() -> None:
    assert from_json({"cores": [0, 1], "driver": ""}, Host) == {"cores": (0, 1), "driver": ""}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "name is missing"),
        ([], "list is not an object"),
        ({"name": 5}, "name: 5 is not a text"),
        ({"name": "\ud800"}, "name: '\\ud800' is not a text"),
        ({"name": "a", "inner": 5}, "inner: 5 is not a list"),
        ({"name": "a", "inner": [{"code": 2**40}]}, "inner: code: 1099511627776 is not in -64..255"),
        ({"name": "a", "inner": [{"code": True}]}, "inner: code: True is not an integer of 64 bits"),
        ({"name": "a", "inner": [{"code": 0, "color": []}]}, "inner: color: list is not one of"),
        ({"name": "a", "by_name": {"x": float("nan")}}, "by_name: x: nan is not a finite number"),
        ({"name": "a", "by_name": {"x": 10**400}}, "by_name: x: "),
        ({"name": "a", "limit": "abc"}, "limit: 'abc' is not a finite number"),
        ({"name": "a", "stream": {}}, "stream: dict is not one of ('stdout', 'stderr')"),
        ({"name": "a", "pair": ["h1"]}, "pair: list is not a list of 2"),
        ({"name": "a", "short": "x" * 99_999}, "short: 'xxx"),
        ({"name": "a", "short": 3}, "short: 3 is not a text"),
        ({"name": "a", "extra": {"x": 1 << 70}}, "extra: x: an integer in it needs more than 64 bits"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^") as error:
        from_json(values, Outer)
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 300


def test_json_that_is_nested_too_deeply_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(list(Outer.__annotations__)), inner),
)


@given(_JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for kind in (Outer, Host, Inner):
        try:
            from_json(value, kind)
        except ValueError:
            continue
