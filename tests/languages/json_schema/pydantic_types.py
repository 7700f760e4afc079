"""Types of Pydantic as people write them, and what Pydantic requires beyond the schemas that it makes from them."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar

import pydantic
from pydantic import (
    UUID6,
    UUID7,
    UUID8,
    AliasChoices,
    AnyHttpUrl,
    AwareDatetime,
    Base64UrlStr,
    BaseModel,
    ByteSize,
    ConfigDict,
    Discriminator,
    EmailStr,
    Field,
    FilePath,
    FutureDate,
    HttpUrl,
    ImportString,
    IPvAnyAddress,
    Json,
    JsonValue,
    NaiveDatetime,
    NonNegativeInt,
    OnErrorOmit,
    PastDate,
    PastDatetime,
    PositiveInt,
    PostgresDsn,
    RedisDsn,
    RootModel,
    SecretBytes,
    SecretStr,
    SkipValidation,
    StrictFloat,
    StrictStr,
    StringConstraints,
    Tag,
    computed_field,
    conbytes,
    condecimal,
    confloat,
    confrozenset,
    conint,
    conset,
    constr,
    field_validator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import Required, TypeAliasType, TypedDict

T = TypeVar("T")
Price = Annotated[Decimal, Field(gt=0, max_digits=6, decimal_places=2)]
Percent = Annotated[float, Field(ge=0, le=100)]
JsonLike = TypeAliasType("JsonLike", "dict[str, JsonLike] | list[JsonLike] | str | int | float | bool | None")
Listed = TypeAliasType("Listed", list[T], type_params=(T,))

Recent = Annotated[dt.date, Field(ge=dt.date(2020, 1, 1))]
Short = Annotated[dt.timedelta, Field(le=dt.timedelta(days=1))]
Stripped = constr(strip_whitespace=True, min_length=1)
TwoBytes = conbytes(min_length=2, max_length=3)
FiveDigits = condecimal(max_digits=5, decimal_places=2)
Hundred = condecimal(ge=0, lt=100)
Quarters = condecimal(multiple_of=Decimal("0.25"))
ByLetter = dict[Annotated[str, Field(pattern="^[a-z]$")], int]


class Mood(str, enum.Enum):
    HAPPY = "happy"
    SAD = "sad"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    HALF = 1.5
    TEXT = "text"
    NOTHING = None


class Login(BaseModel):
    user: SecretStr
    key: SecretBytes


class Encoded(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    data: bytes


class Hexadecimal(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    data: bytes


class Aliased(BaseModel):
    first: str = Field(alias="firstName")
    count: int = Field(validation_alias="N", serialization_alias="M")
    either: int = Field(validation_alias=AliasChoices("x", "y"))


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    user_name: str
    created_at: dt.datetime


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    number: int
    real: float
    day: dt.date
    id: uuid.UUID
    pair: tuple[int, str]
    some: set[int]


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class ExtraTyped(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    a: int


class Titled(BaseModel):
    """With annotations of all kinds."""

    model_config = ConfigDict(title="A title", json_schema_extra={"examples": [{"a": 1}]}, frozen=True)
    a: int = Field(1, title="T", description="d", examples=[1, 2], deprecated=True)


class Item(BaseModel):
    sku: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}-\d{4}$")]
    qty: PositiveInt


class Page(BaseModel, Generic[T]):
    items: list[T] = Field(max_length=3)
    total: NonNegativeInt
    next: str | None = None


class Result(BaseModel, Generic[T]):
    ok: T | None = None
    error: str | None = None


class Address(BaseModel):
    street: str
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]
    country: Literal["DE", "FR", "US"] = "DE"


class Customer(BaseModel):
    id: UUID7
    name: Annotated[str, Field(min_length=1, max_length=30)]
    addresses: list[Address] = Field(default_factory=list, max_length=2)


class Order(BaseModel):
    customer: Customer
    items: list[Item] = Field(min_length=1, max_length=2)
    placed: dt.datetime
    status: Literal["new", "paid"]
    meta: dict[str, str | int | bool | None] = {}
    discount: Percent | None = None


class Step(BaseModel):
    explanation: str
    output: str


class Solution(BaseModel):
    steps: list[Step]
    final_answer: str


class Click(BaseModel):
    action: Literal["click"]
    x: int
    y: int


class Write(BaseModel):
    action: Literal["write"] = "write"
    text: str
    press: bool = False


class Wait(BaseModel):
    action: Literal["wait"] = "wait"
    seconds: Annotated[float, Field(gt=0, le=60)]


class Action(RootModel[Annotated[Click | Write | Wait, Field(discriminator="action")]]):
    pass


class Plan(BaseModel):
    thought: str
    actions: list[Action] = Field(max_length=2)
    done: bool


class Square(BaseModel):
    shape: Literal["square"] = "square"
    side: float


class Circle(BaseModel):
    shape: Literal["circle", "disc"] = "circle"
    radius: float


class Drawn(BaseModel):
    what: Annotated[
        Annotated[Square | Circle, Field(discriminator="shape")]
        | Annotated[Click | Wait, Field(discriminator="action")],
        Field(),
    ]


def _shape_of(value: Any) -> str:
    return value.get("shape", "square") if isinstance(value, dict) else value.shape


Found = Annotated[Annotated[Square, Tag("square")] | Annotated[Circle, Tag("circle")], Discriminator(_shape_of)]


class Leaf(BaseModel):
    value: float


class Branch(BaseModel):
    op: Literal["+", "*"]
    left: Branch | Leaf
    right: Branch | Leaf


class Linked(BaseModel):
    value: int
    next: Linked | None = None


class Folder(BaseModel):
    name: str
    files: list[str] = []
    folders: dict[str, Folder] = {}


class Author(BaseModel):
    books: list[Book] = Field(default=[], max_length=1)


class Book(BaseModel):
    author: Author | None = None


class Computed(BaseModel):
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Checked(BaseModel):
    a: Annotated[int, Field(ge=0)]
    b: SkipValidation[int]

    @field_validator("a")
    @classmethod
    def check(cls, value: int) -> int:
        return value


@dataclass
class Node:
    a: int
    nodes: list[Node] = field(default_factory=list)
    mood: Mood = Mood.SAD


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="forbid"))
class Timed:
    x: Annotated[int, Field(ge=0)]
    y: dt.timedelta | None = None


class Partial(TypedDict, total=False):
    a: Required[int]
    b: str
    c: dt.date


class Place(NamedTuple):
    lat: Annotated[float, Field(ge=-90, le=90)]
    lon: Annotated[float, Field(ge=-180, le=180)]
    name: str = "x"


class Defaults(BaseModel):
    unit: Literal["C", "F"] = "C"
    days: Annotated[int, Field(ge=1, le=7)] = 3
    at: dt.date = dt.date(2024, 1, 1)
    tags: set[str] = set()
    maybe: Optional[list[Optional[int]]] = None  # noqa: UP045 - as people write it


class Schedule(BaseModel):
    start: dt.time
    every: dt.timedelta
    days: set[Literal["mon", "tue", "wed"]]
    at: AwareDatetime | None = None


class Host(BaseModel):
    address: IPvAnyAddress
    networks: list[ipaddress.IPv4Network] = Field(max_length=2)
    gateway: ipaddress.IPv6Address | None
    port: Annotated[int, Field(ge=1, le=65535)] = 80


class Money(BaseModel):
    amount: Price
    currency: constr(pattern="^[A-Z]{3}$")  # type: ignore[valid-type]


MODELS: list[Any] = [
    Login, Encoded, Hexadecimal, Aliased, Camel, Strict, Extra, ExtraTyped, Titled, Page[Item], Result[Page[str]], Customer, Order,
    Solution, Action, Plan, Drawn, Found, Branch, Linked, Folder, Author, Computed, Checked, Node, Timed, Partial, Place, Defaults,
    Schedule, Host, Money, RootModel[list[int]], RootModel[dict[str, Annotated[str, Field(max_length=5)]]],
]  # fmt: skip
OTHERS: list[Any] = [
    Mood, Rights, Mixed, JsonLike, Listed[int], JsonValue, Json, Json[list[int]], PastDate, FutureDate, PastDatetime, NaiveDatetime,
    HttpUrl, AnyHttpUrl, PostgresDsn, RedisDsn, UUID6, UUID7, UUID8, ByteSize, Path, FilePath, ImportString, SecretStr, re.Pattern,
    StrictStr, StrictFloat, complex, Base64UrlStr, EmailStr | None, Hashable, object,
    Recent, Short,
    conint(gt=3, le=50, multiple_of=3), confloat(ge=0, multiple_of=0.5), confloat(allow_inf_nan=False, gt=-1),
    constr(min_length=1, max_length=3, pattern="^[a-z]*$"), Stripped,
    constr(to_lower=True, max_length=4), constr(to_upper=True, pattern="^[A-Z]+$"), TwoBytes,
    conset(int, min_length=2, max_length=3), confrozenset(Literal["a", "b", "c"], min_length=1),
    FiveDigits, Hundred, Quarters,
    deque[int], Annotated[deque[int], Field(max_length=2)], OrderedDict[str, int], defaultdict[str, list[int]], Counter[str],
    Iterable[int], MutableMapping[str, bool], dict[int, str], dict[float, str], dict[bool, int], dict[Mood, int],
    dict[dt.datetime, int], dict[ipaddress.IPv4Address, int], dict[Decimal, int], dict[EmailStr, int],
    ByLetter, dict[str, dict[str, list[int | None]]], dict[str, Address | None],
    float | int | bool, Annotated[int | str, Field(union_mode="left_to_right")], Click | Write | Wait, tuple[()],
    list[Any], dict, list, tuple, set, Literal[True], list[OnErrorOmit[int]],
    Literal['a"b', "c\\d", "é\n", "😀"], Literal["a", 1, None, Mood.SAD], tuple[tuple[int, int], list[tuple[str, float]]],
    Annotated[set[Mood], Field(min_length=2)], Sequence[Literal[1, 2]], list[int | str | list[int]],
]  # fmt: skip

_URL = ("url_", "RFC 3986 asks for no scheme, port or host in particular")
_BOUND = ("date|time_delta|timezone|less_than|greater_than", "bounds of dates and times are not in the schema")
_DECIMAL = ("decimal_|less_than|greater_than", "digits and places are not in the schema, nor are bounds of a string")
_KEY = ("int_|float_|bool_|decimal_|value_error", "the schema does not say the types of keys that are not strings")
_EMAIL = ("value_error", "email-validator takes no reserved domains, no quotes and no literals")
_JSON = ("json_", "the content of a string is not checked: a warning")
STRICTER: dict[Any, tuple[str, str]] = {
    Hexadecimal: ("bytes_invalid_encoding", "the schema says binary: a warning"),
    Found: ("missing|union_tag", "a function finds the tag, which is not in the schema"),
    Money: _DECIMAL, Json: _JSON, Json[list[int]]: ("json_|list_", _JSON[1]),
    PastDate: _BOUND, FutureDate: _BOUND, PastDatetime: _BOUND, NaiveDatetime: _BOUND,
    Recent: _BOUND,
    Short: _BOUND,
    HttpUrl: _URL, AnyHttpUrl: _URL, RedisDsn: _URL, PostgresDsn: ("url_", "the format is Pydantic's own: a warning"),
    ByteSize: ("byte_size", "the pattern takes units that are none"),
    Stripped: ("string_too_short", "Pydantic strips before it counts"),
    FilePath: ("path_", "whether there is such a file"), ImportString: ("import_error", "whether there is such a module"),
    complex: ("complex_", "the schema is any string"), Base64UrlStr: ("value_error", "what is encoded must be UTF-8"),
    TwoBytes: ("bytes_too_long", "the schema counts characters, Pydantic bytes"),
    FiveDigits: _DECIMAL, Hundred: _DECIMAL,
    Quarters: _DECIMAL,
    dict[int, str]: _KEY, dict[float, str]: _KEY, dict[bool, int]: _KEY, dict[Decimal, int]: _KEY, dict[EmailStr, int]: _EMAIL,
    dict[dt.datetime, int]: ("datetime_", "the schema has no format for keys"),
    dict[ipaddress.IPv4Address, int]: ("ip_", "the schema has no format for keys"),
    ByLetter: ("string_pattern", "the schema allows other keys"),
    EmailStr | None: _EMAIL, set: ("set_item_not_hashable", "a set of Python holds no lists"),
    Hashable: ("is_hashable", "a list is not a hashable value of Python"),
}  # fmt: skip
"""For each type: the kinds of error that are not the engine's fault, and why."""
