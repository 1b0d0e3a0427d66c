"""The vocabulary shared by all kinds of task: names, towns, things, small helpers.

Most names are put together from syllables, so that a model trained on them has to copy a name from
the prompt: there are far more names than it could recite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

GIRLS = (
    "Ada Alba Alice Amara Anna Aisha Bella Carla Chloe Clara Daria Diana Edith Elena Ella Emma Esther "
    "Fatima Fiona Greta Hana Hilda Ida Ines Irene Ivy Jana Julia Kira Lara Leila Lena Lily Lucia Maria "
    "Maya Mina Nadia Nina Nora Olga Olivia Paula Petra Priya Rosa Ruth Sara Selma Sofia Tamar Tessa "
    "Vera Wanda Yara Yuki Zoe"
).split()
BOYS = (
    "Adam Alan Amir Anton Arne Ben Boris Carl Chen Daniel David Dimitri Eli Emil Erik Felix Finn Frank "
    "George Hamid Hans Hugo Ivan Jack Jakob Jonas Karim Kenji Leo Liam Luca Marco Marcus Martin Milan "
    "Nils Noah Omar Oscar Otto Paul Pedro Peter Rafael Robert Samuel Simon Stefan Sven Theo Thomas "
    "Tobias Tom Victor Walter Yusuf"
).split()
_STARTS = (
    "Ba Be Bo Bri Ca Co Da De Do El Fa Fe Fi Ga Go Gri Ha He Hu Il Ja Jo Ka Ke Ki La Le Li Lo Ma Me Mi "
    "Mo Na Ne Ni No Or Pa Pe Pi Ra Re Ri Ro Sa Se Si So Ta Te Ti To Ul Va Ve Vi Wa We Wi Ya Yo Za Ze"
).split()
_MIDDLES = "la ri no me vi sa do ka lu re ti ma ne bo sha dri va le".split()
_GIRL_ENDS = "na ra la lia nia sha mi ri da ssa tta ya".split()
_BOY_ENDS = "n ro lo ko s th rin bel dor ven mon k las r nt".split()
_SURNAME_STARTS = (
    "Ash Bark Bell Black Bright Brook Car Clay Cold Dun Elder Fair Far Field Fox Gold Gran Green Hale "
    "Hart Hill Holm Kirk Lake Lang Long March Mill Moor North Oak Old Pen Pike Red Rock Sand Sharp "
    "Silver Stan Stone Strong Sutter Thorn Wal Ward West Whit Wind Wood"
).split()
_SURNAME_ENDS = "berg by croft dale den er field ford gate ham hurst land ley man mont row son ton well wick".split()
_TOWN_STARTS = (
    "Ald Amber Ash Bar Beck Black Bram Bren Cal Castle Clear Cor Dal Deep Dor East Elm Fal Fern Glen "
    "Gold Green Har Hazel High Iron Kel Kings Lang Lin Mar Mill Nor North Oak Ox Port Queens Raven Rose "
    "Salt Sel Silver Stan Sun Tor Val Wal Wind Win"
).split()
_TOWN_ENDS = "bridge brook burg bury dale field ford gate ham haven hill holm mere minster mouth port stead ton vale wick".split()

COLOURS = "red blue green yellow white black brown grey orange purple pink golden silver".split()
MATERIALS = "wooden steel glass paper copper cotton leather plastic stone woollen".split()
GOODS = (
    "lamp chair table clock mirror basket kettle blanket pillow shelf candle carpet drawer bottle bowl "
    "hammer ladder bucket rope torch tent backpack helmet bicycle kite drum violin flute camera printer "
    "keyboard notebook pencil stapler envelope calendar map globe jacket scarf hat belt wallet watch "
    "umbrella ring mug spoon teapot vase statue"
).split()
COUNTED = (
    "apples pears plums oranges lemons eggs cookies muffins candles stamps coins marbles shells stickers "
    "pencils pens books cards buttons ribbons roses tulips seeds tickets bottles cups plates boxes "
    "bricks nails ropes balls kites toys dolls stones beads photos magnets badges"
).split()
FOODS = (
    "bread cheese soup rice honey porridge salad pasta stew pancakes dumplings noodles beans mushrooms "
    "berries nuts carrots potatoes tomatoes onions olives yogurt butter jam tea coffee milk juice "
    "lemonade cocoa"
).split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
JOBS = (
    "teacher nurse baker farmer pilot sailor painter writer lawyer doctor driver cook tailor carpenter "
    "gardener librarian plumber singer dancer waiter barber chemist engineer architect fisherman miner "
    "guard clerk editor dentist"
).split()


def girl(rng: random.Random) -> str:
    """A given name for a girl, from the list or, more often, invented."""
    if rng.random() < 0.35:
        return rng.choice(GIRLS)
    middle = rng.choice(_MIDDLES) if rng.random() < 0.4 else ""
    return rng.choice(_STARTS) + middle + rng.choice(_GIRL_ENDS)


def boy(rng: random.Random) -> str:
    """A given name for a boy, from the list or, more often, invented."""
    if rng.random() < 0.35:
        return rng.choice(BOYS)
    middle = rng.choice(_MIDDLES) if rng.random() < 0.4 else ""
    return rng.choice(_STARTS) + middle + rng.choice(_BOY_ENDS)


def given_name(rng: random.Random) -> str:
    """A given name of either kind."""
    return girl(rng) if rng.random() < 0.5 else boy(rng)


def surname(rng: random.Random) -> str:
    """An invented family name."""
    return rng.choice(_SURNAME_STARTS) + rng.choice(_SURNAME_ENDS)


def town(rng: random.Random) -> str:
    """An invented town."""
    return rng.choice(_TOWN_STARTS) + rng.choice(_TOWN_ENDS)


def distinct(rng: random.Random, draw: Callable[[random.Random], str], num: int) -> list[str]:
    """``num`` different values of ``draw(rng)``."""
    found: list[str] = []
    while len(found) < num:
        value = draw(rng)
        if value not in found:
            found.append(value)
    return found


def a(noun: str) -> str:
    """The noun phrase with its indefinite article: ``a lamp``, ``an old lamp``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def listing(parts: Sequence[str]) -> str:
    """``x``, ``x and y`` or ``x, y and z``."""
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def upper_first(text: str) -> str:
    """The text with its first letter in upper case, the rest untouched."""
    return text[:1].upper() + text[1:]
