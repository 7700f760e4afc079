"""Generated cases: short texts and the facts in them, both made by rules from a seed.

They copy nobody's data, no model has seen them, and every right answer is known. Kinds: a contract's terms, an invoice
with its items, an address, a date in words, a ticket's labels, lists in lists.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dotllm.bench.quality.cases import Call, Case, Function, Schema

SET = "extractions"
KINDS: dict[str, Callable[[random.Random], tuple[str, dict[str, Any], dict[str, Schema]]]] = {}
"""Makers of (text, facts, the properties of their schema)."""

PEOPLE = (
    "Ana Duarte",
    "Bo Lindqvist",
    "Chidi Okafor",
    "Dana Petrov",
    "Emre Kaya",
    "Fumi Tanaka",
    "Grace Mbeki",
    "Hugo Roy",
)
FIRMS = (
    "Alder Mills",
    "Bluepeak",
    "Corvid Labs",
    "Delta Foods",
    "Eastway Rail",
    "Fernhill Press",
    "Granite Bank",
    "Hartley",
)
CITIES = {
    "Lisbon": "Portugal",
    "Osaka": "Japan",
    "Nairobi": "Kenya",
    "Lyon": "France",
    "Oslo": "Norway",
    "Lima": "Peru",
}
STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Oak Avenue", "Church Row", "Bridge Street")
GOODS = (
    "desk lamp",
    "office chair",
    "paper ream",
    "whiteboard",
    "laptop stand",
    "phone case",
    "coffee mug",
    "backpack",
)
EVENTS = ("The board meeting", "The inspection", "The concert", "The final exam", "The product launch", "The hearing")
MONTHS = tuple(datetime.date(2000, month, 1).strftime("%B") for month in range(1, 13))
CURRENCIES = ("EUR", "USD", "GBP", "JPY")
TEXT: Schema = {"type": "string", "maxLength": 60}
DATE: Schema = {"type": "string", "format": "date"}
MONEY: Schema = {"type": "number", "minimum": 0}


def whole(least: int, most: int) -> Schema:
    """The schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def cases(count: int = 240, *, seed: int = 0) -> Iterator[Case]:
    """``count`` cases, of each kind in turn."""
    kinds = list(KINDS.items())
    for number in range(count):
        kind, make = kinds[number % len(kinds)]
        text, facts, properties = make(random.Random(f"{seed} {number}"))
        names = ", ".join(properties)
        instruction = (
            f"Read the user's text and reply with one JSON object of these facts from it: {names}. "
            "Dates are written YYYY-MM-DD."
        )
        yield Case(
            f"{kind}_{number}",
            SET,
            [{"role": "user", "content": text}],
            [Function(f"record_{kind}", f"Record the facts of the text: {names}.", _object(properties))],
            "arguments",
            partial(judge, facts),
            instruction,
            wanted=[(f"record_{kind}", {name: [fact] for name, fact in facts.items()})],
        )


def judge(facts: dict[str, Any], calls: Sequence[Call]) -> str:
    """ "" if the only call's arguments are the facts; otherwise the class of the first difference."""
    return difference(facts, calls[0].arguments) if len(calls) == 1 else "number of calls"


def difference(right: Any, given: Any) -> str:
    """The class of the first difference, or "". Texts are compared without case, spaces, a leading "the" and a final
    full stop; everything else exactly, with 3.0 equal to 3."""
    if isinstance(right, dict):
        if not isinstance(given, dict):
            return "type"
        if set(given) != set(right):
            return "a key is missing" if set(right) - set(given) else "a key was invented"
        return next((fault for key in right if (fault := difference(right[key], given[key]))), "")
    if isinstance(right, list):
        if not isinstance(given, list):
            return "type"
        if len(given) != len(right):
            return "length of a list"
        return next((fault for pair in zip(right, given, strict=True) if (fault := difference(*pair))), "")
    if isinstance(right, bool) or isinstance(given, bool):
        return "" if right is given else "value: boolean"
    if isinstance(right, str):
        if not isinstance(given, str):
            return "type"
        kind = "date" if re.fullmatch(r"\d{4}-\d\d-\d\d", right) else "text"
        return "" if _plain(right) == _plain(given) else f"value: {kind}"
    return "" if right == given else "value: number"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").removeprefix("the ")


def _day(draw: random.Random) -> datetime.date:
    return datetime.date(2025, 1, 1) + datetime.timedelta(days=draw.randrange(1200))


def _in_words(day: datetime.date, draw: random.Random) -> str:
    suffix = "th" if 11 <= day.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    month = MONTHS[day.month - 1]
    return draw.choice(
        (
            f"{day.day} {month} {day.year}",
            f"{month} {day.day}, {day.year}",
            f"the {day.day}{suffix} of {month} {day.year}",
        )
    )


def _kind(make: Callable[[random.Random], tuple[str, dict[str, Any], dict[str, Schema]]]) -> Any:
    KINDS[make.__name__] = make
    return make


@_kind
def contract(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """Parties, beginning, term and fee."""
    client, supplier = draw.sample(FIRMS, 2)
    begin, months, fee, currency = (
        _day(draw),
        draw.choice((6, 12, 18, 24, 36)),
        draw.randrange(5, 90) * 100,
        draw.choice(CURRENCIES),
    )
    when = _in_words(begin, draw)
    text = draw.choice(
        (
            f"This agreement between {client} (the client) and {supplier} (the supplier) begins on {when}, runs for "
            f"{months} months and costs {fee} {currency} a month.",
            f"{supplier} will supply its services to {client}, its client, for {months} months from {when}. "
            f"The monthly fee is {currency} {fee}.",
        )
    )
    facts = {
        "client": client,
        "supplier": supplier,
        "begins": begin.isoformat(),
        "months": months,
        "monthly_fee": fee,
        "currency": currency,
    }
    properties: dict[str, Schema] = {
        "client": TEXT,
        "supplier": TEXT,
        "begins": DATE,
        "months": whole(1, 120),
        "monthly_fee": MONEY,
        "currency": {"enum": list(CURRENCIES)},
    }
    return text, facts, properties


@_kind
def invoice(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """A number, one to three items, and their sum."""
    number = f"INV-{draw.randrange(1000, 9999)}"
    items: list[dict[str, Any]] = [
        {"name": name, "quantity": draw.randrange(1, 9), "price": draw.randrange(2, 80) / 2}
        for name in draw.sample(GOODS, draw.randrange(1, 4))
    ]
    total, paid = sum(item["quantity"] * item["price"] for item in items), draw.random() < 0.5
    listed = "; ".join(f"{item['quantity']} x {item['name']} at {item['price']:.2f}" for item in items)
    state = "It has been paid." if paid else "It has not been paid yet."
    text = f"Invoice {number}: {listed}. Total {total:.2f}. {state}"
    item_schema = _object({"name": TEXT, "quantity": whole(1, 1000), "price": MONEY})
    properties: dict[str, Schema] = {
        "number": {"type": "string", "pattern": "^INV-[0-9]{4}$"},
        "items": {"type": "array", "items": item_schema, "minItems": 1, "maxItems": 10},
        "total": MONEY,
        "paid": {"type": "boolean"},
    }
    return text, {"number": number, "items": items, "total": total, "paid": paid}, properties


@_kind
def address(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """A person's address, in a sentence."""
    name, street, number = draw.choice(PEOPLE), draw.choice(STREETS), draw.randrange(1, 200)
    city, postcode = draw.choice(list(CITIES)), f"{draw.randrange(10000, 99999)}"
    country = CITIES[city]
    text = draw.choice(
        (
            f"Please send it to {name}, {number} {street}, {postcode} {city}, {country}.",
            f"{name} has moved to {city} in {country}: the new address is {number} {street}, postcode {postcode}.",
        )
    )
    facts = {"name": name, "number": number, "street": street, "postcode": postcode, "city": city, "country": country}
    properties: dict[str, Schema] = {
        "name": TEXT,
        "number": whole(1, 9999),
        "street": TEXT,
        "postcode": {"type": "string", "pattern": "^[0-9]{5}$"},
        "city": TEXT,
        "country": {"enum": sorted(CITIES.values())},
    }
    return text, facts, properties


@_kind
def date(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """An event's day and time."""
    event, day, hour, minute = draw.choice(EVENTS), _day(draw), draw.randrange(7, 21), draw.choice((0, 15, 30, 45))
    time = f"{hour:02d}:{minute:02d}"
    text = draw.choice(
        (
            f"{event} takes place on {_in_words(day, draw)} at {time}.",
            f"{event} was moved. It is now on {_in_words(day, draw)}, starting at {time}.",
        )
    )
    facts = {"event": event, "day": day.isoformat(), "time": time}
    properties = {"event": TEXT, "day": DATE, "time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}}
    return text, facts, properties


@_kind
def ticket(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """The labels of a support ticket, each of which the text mentions."""
    product = draw.choice(("mobile app", "website", "router", "printer"))
    severity = draw.choice(("low", "medium", "high", "critical"))
    team = draw.choice(("billing", "network", "design", "security"))
    again = draw.random() < 0.5
    text = (
        f"{draw.choice(PEOPLE)} reports a {severity} severity problem with the {product}. "
        f"It {'happens every time' if again else 'happened only once'}. The {team} team will look at it."
    )
    facts = {"product": product, "severity": severity, "team": team, "happens_every_time": again}
    properties: dict[str, Schema] = {
        "product": {"enum": ["mobile app", "website", "router", "printer"]},
        "severity": {"enum": ["low", "medium", "high", "critical"]},
        "team": {"enum": ["billing", "network", "design", "security"]},
        "happens_every_time": {"type": "boolean"},
    }
    return text, facts, properties


@_kind
def teams(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Schema]]:
    """Lists in a list."""
    firsts = [name.split()[0] for name in draw.sample(PEOPLE, 6)]
    names = draw.sample(("Red", "Blue", "Green"), draw.randrange(2, 4))
    listed = []
    for name in names:
        members, firsts = firsts[: (size := draw.randrange(1, 3))], firsts[size:]
        listed.append({"team": name, "members": members})
    text = " ".join(f"Team {t['team']} has {' and '.join(t['members'])}." for t in listed)
    team = _object({"team": TEXT, "members": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 9}})
    return text, {"teams": listed}, {"teams": {"type": "array", "items": team, "minItems": 1, "maxItems": 9}}
