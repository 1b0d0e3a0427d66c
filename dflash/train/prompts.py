"""What a target is asked when it makes its own training data.

Knows English words and the six kinds of task; knows no model. Three sources: turns that the
target invents freely, turns it finishes from an opener of a given kind, and turns filled from
templates. Openers matter most: the target's own phrasing makes them varied at no cost.
"""

from __future__ import annotations

import random
from collections.abc import Callable

KINDS = ("chat", "code", "math", "json", "translate", "edit")

OPENERS: dict[str, tuple[str, ...]] = {
    "chat": (
        "What is", "Why do", "How can I", "Explain", "Tell me about", "Write a short story about",
        "Give me three tips for", "What are the benefits of", "Describe", "Can you suggest",
        "Write a short poem about", "I feel", "Write an email to", "Who was", "Compare",
    ),
    "code": (
        "Write a Python function that", "Write a Python function to", "In Python, how do I",
        "Write a Python class for", "Fix this Python code:\n```python\ndef",
        "Explain what this code does:\n```python\n",
        "Write a JavaScript function that", "Write a SQL query that", "Write unit tests for",
        "Implement", "Write a short script that",
    ),
    "math": (
        "Solve the equation", "What is the sum of", "A train", "If I buy", "A shop sells",
        "Calculate",
        "There are", "What is the area of", "A farmer has", "How many",
        "Find the value of",
        "Solve step by step:",
    ),
    "json": (
        "Extract the name, age and city as JSON:", "Convert this to JSON:",
        "Return a JSON object with",
        "Give the answer as JSON only:", "Write a JSON file that describes",
        "Turn this sentence into JSON:",
        "List three items as a JSON array:",
    ),
    "translate": (
        "Translate to French:", "Translate to Spanish:", "Translate this sentence into German:",
        "How do you say", "Translate the following into Italian:", "What does the French word",
        "Translate to English:",
    ),
    "edit": (
        "Rewrite this more politely:", "Correct the grammar:", "Fix the spelling mistakes:",
        "Summarize this text in one sentence:", "Make this text shorter:",
        "Rewrite in the past tense:",
        "Proofread the following paragraph:", "Rewrite this sentence in a formal tone:",
    ),
}  # fmt: skip


def _listed(text: str, separator: str = " ") -> list[str]:
    """One string of words, so that the lists below stay readable."""
    return text.split(separator)


_NAMES = _listed(
    "Anna Ben Carla David Elena Farid Grace Hugo Ines Jack Karim Lena Maria Nadia Omar Paul Rosa "
    "Sam Tara Victor Wendy Yusuf Zoe Liam Mia Noah Priya Chen Aiko Kofi"
)
_CITIES = _listed(
    "Paris London Madrid Rome Berlin Vienna Oslo Lisbon Dublin Prague Tokyo Boston Chicago Denver "
    "Toronto Sydney Cairo Lima Delhi Seoul"
)
_JOBS = _listed(
    "teacher nurse baker pilot farmer engineer writer doctor gardener lawyer chef plumber painter "
    "driver librarian carpenter"
)
_THINGS = _listed(
    "apples pencils books oranges tickets bottles cookies stickers marbles flowers shirts cups "
    "chairs balloons eggs coins"
)
_TOPICS = _listed(
    "photosynthesis|black holes|the water cycle|healthy breakfasts|learning a language|volcanoes|"
    "saving money|climate change|the Roman Empire|how vaccines work|time management|dogs|jazz|"
    "the moon landing|gardening|public speaking|electric cars|better sleep|the internet|chess|"
    "renewable energy|recycling|coffee|yoga|job interviews|friendship|the ocean|bees|earthquakes|"
    "travelling alone|writing a novel|running a marathon|machine learning|the human heart",
    "|",
)
_CODE_TASKS = _listed(
    "reverses a string|checks whether a number is prime|returns the factorial of n|counts the "
    "vowels in a string|finds the largest number in a list|sorts a list of numbers|returns the "
    "nth Fibonacci number|removes duplicates from a list|checks whether a word is a palindrome|"
    "merges two dictionaries|computes the average of a list|counts words in a sentence|converts "
    "Celsius to Fahrenheit|reads a CSV file|flattens a nested list|finds common elements of two "
    "lists|capitalizes every word|computes the greatest common divisor|checks balanced brackets|"
    "searches a sorted list with binary search|returns all even numbers in a list|counts how "
    "often each letter occurs|rotates a list by k places|finds the second largest value|checks "
    "if two strings are anagrams|computes the power of a number|prints a multiplication table|"
    "sums the digits of a number|removes punctuation|finds the longest word in a sentence",
    "|",
)
_SENTENCES = _listed(
    "The weather is very nice today.|I would like a cup of tea, please.|Where is the train "
    "station?|My brother works in a hospital.|We are going to the beach tomorrow.|She has two "
    "cats and a dog.|The book is on the table.|I do not understand the question.|They bought a "
    "new house last year.|Can you help me with my homework?|The children are playing in the "
    "garden.|He drinks coffee every morning.|What time does the museum open?|I am learning to "
    "cook.|Our teacher is very kind.|The restaurant was closed on Monday.|She wants to travel "
    "around the world.|It is raining and I have no umbrella.",
    "|",
)
_FAULTY = _listed(
    "She go to school every day.|I has three brother.|Their going to the park tommorow.|He dont "
    "like to eat vegetables.|We was happy to see you yesterday.|The informations is not correct.|"
    "Me and him is best friends.|I recieved you're letter last weak.|She can sings very good.|"
    "There is many people in the room.|He have been working here since five years.|The dog wagged "
    "it's tail.|I didnt knew the answer.|Yesterday I go to the market and buyed some apple.",
    "|",
)
_LANGUAGES = _listed("French Spanish German Italian Portuguese Dutch")


def templated_prompt(kind: str, rng: random.Random) -> str:
    """Fill one template of this kind. Raises ``KeyError`` for a kind that is not in ``KINDS``."""
    return _WRITERS[kind](rng)


def _chat(rng: random.Random) -> str:
    topic, name = rng.choice(_TOPICS), rng.choice(_NAMES)
    return rng.choice((
        f"Tell me about {topic}.",
        f"Explain {topic} to a ten-year-old.",
        f"Give me {rng.randint(2, 5)} facts about {topic}.",
        f"Write a short story about {name}, a {rng.choice(_JOBS)} from {rng.choice(_CITIES)}.",
        f"What should I know about {topic}?",
        f"Write a short message to {name} about {topic}.",
        f"Why is {topic} important?",
    ))  # fmt: skip


def _code(rng: random.Random) -> str:
    task = rng.choice(_CODE_TASKS)
    return rng.choice((
        f"Write a Python function that {task}.",
        f"Write a Python function that {task}. Only show the code.",
        f"Show me Python code that {task}, with a short explanation.",
        f"Write a JavaScript function that {task}.",
        f"I need a function in Python. It {task}. Add a docstring.",
    ))  # fmt: skip


def _math(rng: random.Random) -> str:
    a, b, c = rng.randint(3, 60), rng.randint(2, 40), rng.randint(2, 12)
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    return rng.choice((
        f"{name} has {a + b} {thing} and gives away {b}. How many are left?",
        f"{name} buys {c} boxes of {a} {thing}. How many {thing} are there in total?",
        f"What is {a} + {b} * {c}? Show the steps.",
        f"Solve for x: {c}x + {b} = {a * c + b}",
        f"What is {c * 5}% of {a * 20}?",
        f"A rectangle is {a} cm long and {b} cm wide. What are its area and perimeter?",
        f"A train travels {a * c} km in {c} hours. What is its average speed?",
        f"Calculate {a * 10} - {b} and explain.",
    ))  # fmt: skip


def _json(rng: random.Random) -> str:
    name, city, job = rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_JOBS)
    age, thing = rng.randint(18, 80), rng.choice(_THINGS)
    facts = rng.choice((
        f"{name} is {age} years old, lives in {city} and works as a {job}.",
        f"{name}, a {job} from {city}, bought {age} {thing}.",
        f"The order of {name} ({city}) contains {age} {thing} and costs {age * 3} dollars.",
    ))  # fmt: skip
    ask = rng.choice((
        "Turn this sentence into JSON:", "Extract the facts as a JSON object:",
        "Convert to JSON with suitable keys:", "Answer with JSON only:",
    ))  # fmt: skip
    return f"{ask} {facts}"


def _translate(rng: random.Random) -> str:
    language, sentence = rng.choice(_LANGUAGES), rng.choice(_SENTENCES)
    return rng.choice((
        f"Translate to {language}: {sentence}",
        f'Translate "{sentence}" into {language}.',
        f"How do you say this in {language}? {sentence}",
    ))  # fmt: skip


def _edit(rng: random.Random) -> str:
    faulty = " ".join(rng.sample(_FAULTY, rng.randint(1, 3)))
    clean = " ".join(rng.sample(_SENTENCES, rng.randint(2, 4)))
    return rng.choice((
        f"Correct the grammar: {faulty}",
        f"Fix all mistakes and repeat the text: {faulty}",
        f"Rewrite this text in the past tense: {clean}",
        f"Repeat this text, but replace every full stop with an exclamation mark: {clean}",
        f"Make this more formal: {clean}",
        f"Summarize in one sentence: {clean}",
    ))  # fmt: skip


_WRITERS: dict[str, Callable[[random.Random], str]] = {
    "chat": _chat, "code": _code, "math": _math,
    "json": _json, "translate": _translate, "edit": _edit,
}  # fmt: skip
