"""Copy-edit tasks: a text with a few mistakes, or with something to change, is written out again."""

from __future__ import annotations

import random
import re

from dflash.train.corpus import words
from dflash.train.corpus.task import Task

_MISSPELT = dict(
    entry.split(":")
    for entry in (
        "because:becuase friend:freind received:recieved believe:beleive their:thier people:poeple "
        "children:childern different:diffrent beautiful:beautifull tomorrow:tommorow weather:wether "
        "always:allways morning:mornning evening:evning garden:gardan library:libary kitchen:kichen "
        "neighbour:nieghbour village:vilage market:markit bicycle:bycicle letter:leter window:windwo "
        "station:staiton bridge:brigde mountain:mountian island:iland school:shcool question:qestion "
        "answer:anwser picture:pictrue yellow:yelow little:litle quickly:quikly carefully:carefuly "
        "finally:finaly together:togehter surprise:suprise afternoon:afernoon breakfast:brekfast "
        "dinner:diner wonderful:wonderfull strange:strage heavy:heavey narrow:narow quiet:queit "
        "before:befor after:aftr without:wihtout around:arround between:betwen behind:behnd"
    ).split()
)
_WHO = (
    "the old teacher;my neighbour;the young baker;our friend;the tired farmer;the new doctor;her brother;"
    "his sister;the captain;the little girl;the children;the people of the village;a strange man;"
    "the postman;the two cooks;my aunt;the quiet student;the gardener;a tall woman;the guests;the painter;"
    "the singer;three boys;the guard;the whole family"
).split(";")
_DID = (
    "carried {thing} through {place};found {thing} behind {place};left {thing} in {place};"
    "sold {thing} at {place};painted {thing} near {place};cleaned {thing} before dinner;"
    "looked for {thing} around {place};wrote a letter about {thing};told a story about {place};"
    "asked a question about {thing};walked slowly to {place};waited for hours at {place};"
    "dropped {thing} on the way to {place};received {thing} from {name};showed {thing} to {name};"
    "gave {thing} to {name};borrowed {thing} from {name};talked with {name} about {place};"
    "met {name} between {place} and the bridge;hid {thing} under {place};repaired {thing} without help;"
    "saw {name} in front of {place};bought {thing} and {thing} for {name};sent {thing} to {name};"
    "drew a picture of {place};forgot {thing} at {place};took {thing} back to {place}"
).split(";")
_WHEN = (
    "In the morning;After breakfast;Before dinner;Later that day;On {day};Last {day};In {month};At night;"
    "One afternoon;Every evening;During the storm;At the end of {month};Without a word;To the surprise of {name};"
    "A week later;Around noon"
).split(";")
_TAIL = (
    "because the weather was so bad;because {name} had asked for it;and then went home;"
    "and everyone was happy;but nobody noticed;but it was too late;and the children laughed;"
    "while {name} was asleep;before the shop closed;after the rain had stopped;and sang a little song;"
    "because it was a wonderful day;but the door was closed;and waited for an answer;"
    "although the bag was very heavy"
).split(";")
_PLACES = (
    "the garden;the library;the kitchen;the market;the station;the narrow bridge;the school;the island;"
    "the village;the old mill;the mountain;the harbour;the church;the bakery;the field;{town};"
    "{town};the museum;the window;the river"
).split(";")
_SIZES = "little big heavy old new strange beautiful broken yellow different small round".split()
_FIX_ASKS = (
    "Correct the mistakes in this text:\n{text}",
    "Fix the errors: {text}",
    "Proofread the following text and write it out again without mistakes.\n\n{text}",
    "Please correct this text. {text}",
    "{text}\n\nCorrect all mistakes in the text above.",
    "Copy-edit this: {text}",
)
_SWAP_ASKS = (
    'Replace "{old}" with "{new}" in this text: {text}',
    'Write the text again with "{new}" instead of "{old}".\n{text}',
    'Change "{old}" to "{new}" everywhere.\n\n{text}',
    '{text}\n\nPlease replace every "{old}" by "{new}".',
)
_SHAPES: tuple[tuple[str, str], ...] = (  # how it is asked for, and how sentence n comes out
    ("Put each sentence on its own line.\n{text}", "{line}"),
    ("Number the sentences of this text: {text}", "{n}. {line}"),
    ("Write this as a list with dashes.\n\n{text}", "- {line}"),
)


def _fill(rng: random.Random, frame: str, cast: list[str]) -> str:
    """Fill the slots of a frame, each one anew."""

    def slot(match: re.Match[str]) -> str:
        return {
            "thing": lambda: (
                words.a(f"{rng.choice(_SIZES)} {rng.choice(words.GOODS)}")
                if rng.random() < 0.6
                else f"the {rng.choice(words.GOODS)}"
            ),
            "place": lambda: _fill(rng, rng.choice(_PLACES), cast),
            "name": lambda: rng.choice(cast),
            "town": lambda: words.town(rng),
            "day": lambda: rng.choice(words.DAYS),
            "month": lambda: rng.choice(words.MONTHS),
        }[match[1]]()

    return re.sub(r"\{(\w+)\}", slot, frame)


def _sentence(rng: random.Random, cast: list[str]) -> str:
    who = rng.choice(cast) if rng.random() < 0.45 else rng.choice(_WHO)
    text = f"{who} {_fill(rng, rng.choice(_DID), cast)}"
    if rng.random() < 0.4:
        text = f"{_fill(rng, rng.choice(_WHEN), cast)} {text}"
    if rng.random() < 0.4:
        text += f" {_fill(rng, rng.choice(_TAIL), cast)}"
    return words.upper_first(text) + "."


def _misspell(rng: random.Random, text: str) -> str:
    """Swap one word of the text, if any can be, for its usual misspelling."""
    found = [word for word in re.findall(r"[a-z]+", text) if word in _MISSPELT]
    if not found:
        return text
    word = rng.choice(found)
    return re.sub(rf"\b{word}\b", _MISSPELT[word], text, count=1)


def _double(rng: random.Random, text: str) -> str:
    """Write one small word twice: ``the the``."""
    parts = text.split(" ")
    at = rng.randrange(1, len(parts) - 1)
    if not parts[at].isalpha():
        return text
    return " ".join([*parts[: at + 1], parts[at], *parts[at + 1 :]])


def _lower_start(rng: random.Random, text: str) -> str:
    return text[0].lower() + text[1:]


def _no_stop(rng: random.Random, text: str) -> str:
    return text[:-1]


def _article(rng: random.Random, text: str) -> str:
    """Get an article wrong: ``a old lamp``."""
    return re.sub(r"\b(a|an) (?=[a-z])", lambda m: "an " if m[1] == "a" else "a ", text, count=1)


_FAULTS = (_misspell, _misspell, _misspell, _double, _lower_start, _no_stop, _article)


def _fix(rng: random.Random, sentences: list[str]) -> Task:
    spoilt = list(sentences)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(spoilt))
        if spoilt[at] == sentences[at]:  # at most one fault a sentence keeps the answer unique
            spoilt[at] = rng.choice(_FAULTS)(rng, spoilt[at])
    prompt = rng.choice(_FIX_ASKS).format(text=" ".join(spoilt))
    return Task(prompt, " ".join(sentences))


def _swap(rng: random.Random, sentences: list[str], cast: list[str]) -> Task:
    text = " ".join(sentences)
    old = rng.choice(cast)
    if not re.search(rf"\b{old}\b", text):
        text = f"{old} woke up early. {text}"
    new = words.given_name(rng)
    prompt = rng.choice(_SWAP_ASKS).format(old=old, new=new, text=text)
    return Task(prompt, re.sub(rf"\b{old}\b", new, text))


def _reshape(rng: random.Random, sentences: list[str]) -> Task:
    ask, shape = rng.choice(_SHAPES)
    lines = [shape.format(n=n, line=line) for n, line in enumerate(sentences, start=1)]
    return Task(ask.format(text=" ".join(sentences)), "\n".join(lines))


def draw(rng: random.Random) -> Task:
    """Three to five sentences to correct, to change or to lay out."""
    cast = words.distinct(rng, words.given_name, 3)
    sentences = [_sentence(rng, cast) for _ in range(rng.randint(3, 5))]
    way = rng.random()
    if way < 0.6:
        return _fix(rng, sentences)
    if way < 0.8:
        return _swap(rng, sentences, cast)
    return _reshape(rng, sentences)
