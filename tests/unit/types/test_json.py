"""JSON: one text per document, exact numbers, paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidTextRepresentation, NumericOutOfRange, ShoalError, StatementTooComplex
from shoal.types import json
from tests.unit.types.strategies import json_texts


@pytest.mark.parametrize(
    "text, stored",
    [
        (' { "b" : 1 , "a" : [ true , null ] } ', '{"b":1,"a":[true,null]}'),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        ('"\\u00e9\\/\\n\\u0001"', '"é/\\n\\u0001"'),
        ('"\\ud83d\\ude00"', '"😀"'),
        ("[]", "[]"),
        ("{}", "{}"),
        ("-0", "0"),
        ("-0.0", "0.0"),
        ("1.0", "1.0"),
        ("1.50", "1.5"),
        ("1e2", "100.0"),
        ("1E400", None),
        ("1e-400", None),
        ("0.1", "0.1"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("0.12345678901234567890123456789", "0.12345678901234567890123456789"),
        ("1234567890123456789.5", "1234567890123456789.5"),
        ("1e300", "1e+300"),
        ("1" * 39, None),
        ("0." + "1" * 45, None),
    ],
)
def test_canonical(text: str, stored: str | None) -> None:
    if stored is None:
        with pytest.raises(NumericOutOfRange, match="out of range for type json"):
            json.canonical(text)
    else:
        assert json.canonical(text) == stored
        assert json.canonical(stored) == stored


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[1,]", "{'a':1}", "{a:1}", "NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "tru", '"a',
        '"\n"', '"\\x"', '"\\ud800"', '"\\u0000"', "[1] 2", "\ufeff1", "// x", '{"a"}', "[1 2]",
    ],
)  # fmt: skip
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type json"):
        json.canonical(text)


def test_depth_has_a_bound() -> None:
    deep = "[" * 500 + "]" * 500
    assert json.canonical(deep) == deep
    for depth in (600, 100_000):
        with pytest.raises(StatementTooComplex):
            json.canonical("[" * depth + "]" * depth)


@given(json_texts)
def test_canonical_texts_stay(stored: str) -> None:
    assert json.canonical(stored) == stored


@given(st.text('[]{}",:0123456789.eE+-truefalsn\\ \t', max_size=30))
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    try:
        stored = json.canonical(text)
    except ShoalError:
        return
    assert json.canonical(stored) == stored


def test_paths() -> None:
    document = '{"a":[10,{"b":"x"},null],"1":"one","":0}'
    for path, found in [
        (("a",), '[10,{"b":"x"},null]'),
        (("a", 1), "10"),
        (("a", "1"), "10"),
        (("a", 2, "b"), '"x"'),
        (("a", 3), None),
        (("a", 0), None),
        (("a", -1), None),
        (("a", 4), None),
        (("a", "x"), None),
        (("a", "9" * 30), None),
        (("1",), '"one"'),
        ((1,), '"one"'),
        (("",), "0"),
        (("missing", "b"), None),
        (("a", 1, "b"), None),
        ((), document),
    ]:
        assert json.extract(document, path) == found, path
    assert json.extract("null", ()) is None


def test_elements() -> None:
    assert json.element_texts('[1,"x",null,[2]]') == ["1", '"x"', None, "[2]"]
    with pytest.raises(InvalidTextRepresentation, match="no array"):
        json.element_texts('{"a":1}')
