"""JSON tasks: a sentence with facts goes in, a JSON object with the asked-for keys comes out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from dflash.train.corpus import words
from dflash.train.corpus.task import Task

_EVENTS = "concert lecture workshop wedding dinner parade exhibition match fair meeting".split()
_VEHICLES = "train bus ferry plane coach tram".split()
Record = tuple[str, dict[str, Any]]  # the sentences, and every fact in them by key

_ASKS = (
    "Turn this into JSON with the keys {keys}.\n{text}",
    "Extract {keys} as JSON: {text}",
    "Write the following as a JSON object with {keys}.\n\n{text}",
    "{text}\n\nGive me JSON with the keys {keys}.",
    "Return a JSON object with the fields {keys} for this text: {text}",
    "Make JSON with {keys} from this note.\n{text}",
    "Please convert to JSON (keys: {keys}). {text}",
    "{text} Write that as JSON with the keys {keys}.",
)


def _person(rng: random.Random) -> Record:
    name, last, city = words.given_name(rng), words.surname(rng), words.town(rng)
    age, job, member = rng.randint(18, 89), rng.choice(words.JOBS), rng.random() < 0.5
    state = "is a member" if member else "is not a member"
    text = rng.choice(
        (
            f"{name} {last} is {age} years old, works as {words.a(job)} in {city} and {state}.",
            f"Our {job} {name} {last} from {city}, aged {age}, {state} of the club.",
            f"In {city} lives {words.a(job)} called {name} {last}. Age: {age}. {name} {state}.",
            f"{name} {last}, {age}, {job}, {city}. {name} {state}.",
        )
    )
    facts = {
        "first_name": name,
        "last_name": last,
        "age": age,
        "job": job,
        "city": city,
        "member": member,
    }
    return text, facts


def _order(rng: random.Random) -> Record:
    name, item, colour = words.given_name(rng), rng.choice(words.GOODS), rng.choice(words.COLOURS)
    count, price, number = rng.randint(2, 60), rng.randint(3, 240), rng.randint(100, 9999)
    paid = rng.random() < 0.5
    state = "has been paid" if paid else "has not been paid"
    text = rng.choice(
        (
            f"{name} ordered {count} of the {colour} {item} at {price} dollars each. "
            f"Order {number} {state}.",
            f"Order number {number} by {name}: {count} times the {item} in {colour}, "
            f"{price} dollars a piece. It {state}.",
            f"Please note that order {number} {state}. {name} wants {count} pieces of the "
            f"{colour} {item} and pays {price} dollars for each.",
        )
    )
    facts = {
        "order": number,
        "customer": name,
        "item": item,
        "colour": colour,
        "quantity": count,
        "price": price,
        "paid": paid,
    }
    return text, facts


def _event(rng: random.Random) -> Record:
    what = rng.choice(_EVENTS)
    day, month, date = rng.choice(words.DAYS), rng.choice(words.MONTHS), rng.randint(1, 28)
    hour, city, guests = rng.randint(8, 22), words.town(rng), rng.randint(5, 900)
    host = words.given_name(rng)
    text = rng.choice(
        (
            f"The {what} in {city} is on {day}, {month} {date}, at {hour}:00. {host} expects "
            f"{guests} guests.",
            f"{host} invites {guests} people to {words.a(what)} on {day} {date} {month} in {city}. "
            f"It starts at {hour}:00.",
            f"On {day}, the {date} of {month}, there will be {words.a(what)} for {guests} guests. "
            f"Place: {city}. Time: {hour}:00. Host: {host}.",
        )
    )
    facts = {
        "event": what,
        "city": city,
        "weekday": day,
        "month": month,
        "day": date,
        "time": f"{hour}:00",
        "guests": guests,
        "host": host,
    }
    return text, facts


def _trip(rng: random.Random) -> Record:
    start, end = words.distinct(rng, words.town, 2)
    vehicle = rng.choice(_VEHICLES)
    number = rng.choice("ABCDEFGHKLMNPRSTVWX") + str(rng.randint(10, 999))
    hour, minute, seats = (
        rng.randint(5, 23),
        rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)),
        rng.randint(1, 80),
    )
    clock = f"{hour}:{minute:02d}"
    late = rng.random() < 0.5
    state = "is late" if late else "is on time"
    text = rng.choice(
        (
            f"The {vehicle} {number} from {start} to {end} leaves at {clock}, has {seats} free seats "
            f"and {state}.",
            f"{vehicle.title()} {number} {state}. It goes from {start} to {end} at {clock} with "
            f"{seats} free seats.",
            f"There are {seats} seats left on the {vehicle} {number}, which leaves {start} for {end} "
            f"at {clock}. It {state}.",
        )
    )
    facts = {
        "line": number,
        "vehicle": vehicle,
        "start": start,
        "end": end,
        "leaves": clock,
        "free_seats": seats,
        "late": late,
    }
    return text, facts


def _shopping(rng: random.Random) -> Record:
    name, city = words.given_name(rng), words.town(rng)
    items = rng.sample(words.FOODS, rng.randint(2, 4))
    day, budget = rng.choice(words.DAYS), rng.randint(5, 120)
    text = rng.choice(
        (
            f"On {day} {name} will buy {words.listing(items)} in {city} for at most {budget} dollars.",
            f"{name} needs {words.listing(items)}. The market in {city} is open on {day}, and the "
            f"budget is {budget} dollars.",
            f"Shopping list of {name} for {day}: {words.listing(items)}. Shop in {city}, spend no "
            f"more than {budget} dollars.",
        )
    )
    facts = {"name": name, "city": city, "day": day, "items": items, "budget": budget}
    return text, facts


def _device(rng: random.Random) -> Record:
    item, material, colour = (
        rng.choice(words.GOODS),
        rng.choice(words.MATERIALS),
        rng.choice(words.COLOURS),
    )
    weight, price, year = rng.randint(1, 95), rng.randint(4, 980), rng.randint(1950, 2029)
    maker = words.surname(rng)
    text = rng.choice(
        (
            f"The {colour} {material} {item} made by {maker} in {year} weighs {weight} kg and costs "
            f"{price} dollars.",
            f"{maker} sells {words.a(material)} {item} from {year}. Its colour is {colour}, its "
            f"weight {weight} kg, its price {price} dollars.",
            f"For sale: {colour} {item}, {material}, {weight} kg, built by {maker} in {year}, only "
            f"{price} dollars.",
        )
    )
    facts = {
        "product": item,
        "maker": maker,
        "material": material,
        "colour": colour,
        "weight": weight,
        "price": price,
        "year": year,
    }
    return text, facts


def _team(rng: random.Random) -> Record:
    names = words.distinct(rng, words.given_name, rng.randint(2, 4))
    leader, city, project = words.given_name(rng), words.town(rng), rng.choice(words.GOODS)
    weeks = rng.randint(2, 52)
    text = rng.choice(
        (
            f"{leader} leads the {project} project in {city} with {words.listing(names)}. It takes "
            f"{weeks} weeks.",
            f"The {project} project takes {weeks} weeks. {words.listing(names)} work on it in {city}, "
            f"led by {leader}.",
            f"Project: {project}. Leader: {leader}. Members: {words.listing(names)}. Place: {city}. "
            f"Duration: {weeks} weeks.",
        )
    )
    facts = {"project": project, "leader": leader, "members": names, "city": city, "weeks": weeks}
    return text, facts


def _room(rng: random.Random) -> Record:
    guest, hotel = words.given_name(rng), words.town(rng)
    number, nights, beds = rng.randint(1, 480), rng.randint(1, 21), rng.randint(1, 6)
    breakfast = rng.random() < 0.5
    state = "with breakfast" if breakfast else "without breakfast"
    month = rng.choice(words.MONTHS)
    text = rng.choice(
        (
            f"{guest} stays in room {number} of the Hotel {hotel} for {nights} nights in {month}, "
            f"{beds} beds, {state}.",
            f"Hotel {hotel}, room {number}: {guest} has booked {beds} beds for {nights} nights in "
            f"{month} {state}.",
            f"A room {state} for {guest}: number {number}, {beds} beds, {nights} nights in {month}, "
            f"Hotel {hotel}.",
        )
    )
    facts = {
        "guest": guest,
        "hotel": hotel,
        "room": number,
        "beds": beds,
        "nights": nights,
        "month": month,
        "breakfast": breakfast,
    }
    return text, facts


_RECORDS: tuple[Callable[[random.Random], Record], ...] = (
    _person, _order, _event, _trip, _shopping, _device, _team, _room,
)  # fmt: skip


def draw(rng: random.Random) -> Task:
    """One task: a few of the facts are asked for, in an order of the prompt's choosing."""
    text, facts = rng.choice(_RECORDS)(rng)
    keys = rng.sample(sorted(facts), rng.randint(4, len(facts)))
    if rng.random() < 0.5:
        keys = [key for key in facts if key in keys]
    prompt = rng.choice(_ASKS).format(keys=words.listing(keys), text=text)
    return Task(prompt, json.dumps({key: facts[key] for key in keys}, indent=2))


def drill(rng: random.Random) -> Task:
    """A bare list of words: after a quote a word is another token than after a space."""
    lists = (words.GOODS, words.GOODS, words.JOBS, words.FOODS, words.COLOURS, words.MATERIALS)
    found = [
        rng.choice(rng.choice((*lists, _EVENTS, _VEHICLES))) for _ in range(rng.randint(5, 12))
    ]
    return Task("Make a JSON list of: " + ", ".join(found), json.dumps(found, indent=2))
