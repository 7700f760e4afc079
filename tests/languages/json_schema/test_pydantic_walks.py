"""Random walks under the schemas of Pydantic's types, each judged by the type's own validator.

`STRICTER` lists what Pydantic requires beyond its own schema, with the reason; nothing else may be refused. Formats
that are not enforced are reported, and nothing else is.
"""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import re
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MultipleOf
from pydantic import (
    UUID1,
    UUID3,
    UUID4,
    UUID5,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    Base64Str,
    Base64UrlBytes,
    BaseModel,
    ConfigDict,
    EmailStr,
    Field,
    FiniteFloat,
    IPvAnyAddress,
    IPvAnyInterface,
    IPvAnyNetwork,
    NameEmail,
    NegativeFloat,
    NegativeInt,
    NonNegativeFloat,
    NonPositiveInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    conlist,
)
from typing_extensions import NotRequired, TypedDict

from dotllm import Index
from dotllm.languages.json_schema.strings.formats import registry as formats
from tests.cases import EVERY
from tests.languages.json_schema import pydantic_types
from tests.languages.json_schema.test_walks import walk
from tests.languages.json_schema.verdicts import byte_vocabulary

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    DARK = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass
class Box:
    name: Annotated[str, Len(1, 8)]
    sizes: tuple[int, ...] = ()


class Film(TypedDict):
    title: str
    year: NotRequired[Annotated[int, Interval(ge=1900, lt=2100)]]


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: int
    children: list[Tree] = Field(default_factory=list, max_length=2)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool = True


class Boxed(BaseModel, Generic[T]):
    item: T
    note: str | None = Field(default=None, max_length=5)


class Event(BaseModel):
    at: dt.datetime
    takes: dt.timedelta | None = None
    who: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,5}$")]
    where: ipaddress.IPv4Network
    price: Annotated[float, Field(gt=0, lt=1e6)]


TYPES: list[Any] = [
    int, float, bool, str, None, Any, bytes, dt.date, dt.time, dt.datetime, dt.timedelta, AwareDatetime, Decimal, Fraction,
    uuid.UUID, UUID1, UUID3, UUID4, UUID5, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network,
    ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface, IPvAnyAddress, IPvAnyInterface, IPvAnyNetwork,
    AnyUrl, EmailStr, NameEmail, Base64Bytes, Base64Str, Base64UrlBytes, FiniteFloat, PositiveInt, NegativeInt,
    NonPositiveInt, PositiveFloat, NegativeFloat, NonNegativeFloat, StrictInt, StrictBool, Colour, Level, Point, Box, Film,
    Tree, Event, Boxed[int], Boxed[dt.date], Literal["a", 1, None, True], dt.date | None, int | dt.date | list[str],
    Annotated[Cat | Dog, Field(discriminator="kind")], dict[str, int], dict[uuid.UUID, bool], dict[dt.date, int],
    dict[Literal["a", "b"], float], list[int], set[int], frozenset[Colour], tuple[int, str], tuple[float, ...],
    Sequence[dt.time], Mapping[str, list[int]], conlist(int, min_length=2, max_length=3), list[Annotated[int, Gt(0), Lt(5)]],
    Annotated[float, Ge(-1), Le(1)], Annotated[float, Gt(0), Lt(1)], Annotated[float, Gt(0)], Annotated[float, Lt(1e16)],
    Annotated[int, MultipleOf(7)], Annotated[int, Ge(10**30)], Annotated[Decimal, Gt(0), Le(9)],
    Annotated[str, StringConstraints(min_length=2, max_length=4)], Annotated[str, StringConstraints(pattern="^x+$")],
    Annotated[list[dt.date], Len(1, 2)], Annotated[dict[str, int], Len(0, 1)], dict[Annotated[str, Len(1, 3)], None], *pydantic_types.MODELS, *pydantic_types.OTHERS,
]  # fmt: skip

STRICTER: dict[Any, tuple[str, str]] = pydantic_types.STRICTER | {
    EmailStr: ("value_error", "email-validator takes no reserved domains, no quotes and no literals"),
    NameEmail: ("value_error", "the same"),
    AnyUrl: ("url_", "RFC 3986 takes a port or a host without characters, and IPvFuture"),
    Base64Str: ("value_error", "what is encoded must be UTF-8"),
    Decimal: ("decimal_", "its own pattern is wider than what it reads"),
    Annotated[Decimal, Gt(0), Le(9)]: ("less_than_equal|greater_than|decimal_", "its schema does not compare a string"),
}  # fmt: skip
"""For each type: the kinds of error that are not the engine's fault, and why."""
SIZES = (0, 1, 3, 8, 20, 60) * 2 if EVERY else (0, 3, 20)
"""bytes that a walk may have beyond the least"""


def test_there_are_many() -> None:
    assert len(TYPES) >= 150


def unenforced(schema: Any) -> set[str]:
    """The conditions of a schema that no automaton decides: formats, and the content of strings."""
    if isinstance(schema, list):
        return set().union(*map(unenforced, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*map(unenforced, schema.values()))
    name = schema.get("format")
    if isinstance(name, str) and name not in formats.FORMATS:
        found.add(name)
    return found | ({"contentMediaType", "contentSchema"} & schema.keys())


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: re.sub(r"[^\w\[\], ]", "", str(kind))[:50])
def test_walks(kind: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema()
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        index = Index.from_json_schema(schema, byte_vocabulary())
    messages = " ".join(str(warning.message) for warning in reported)
    assert all(name in messages for name in unenforced(schema) - {"contentMediaType"})
    assert bool(reported) == bool(unenforced(schema)), messages
    random = Random(str(kind)[:40])
    found = 0
    for more in SIZES:
        text = walk(index, more, random)
        if text is None:
            continue
        found += 1
        try:
            adapter.validate_json(text)
        except ValidationError as error:
            allowed, _ = STRICTER.get(kind, ("", ""))
            wrong = error.errors()[0]["type"]
            assert allowed and re.match(allowed, wrong), (text, str(error))
        except OverflowError:
            assert kind is re.Pattern, text  # Python's counts of repetitions end at 2³²
    assert found > (0 if kind in STRICTER else len(SIZES) // 3)
