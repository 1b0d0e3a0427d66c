"""Six example prompts, one per kind, for the chips under the prompt box.

The demo pair was trained on these forms of task; the wording suits any instruct model. How
predictable an answer is says how much a draft can win on it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """One chip. ``foresight`` is how easy the answer is to foresee, in words."""

    kind: str
    foresight: str
    prompt: str


EXAMPLES: tuple[Example, ...] = (
    Example(
        "code",
        "easy to foresee",
        "Code a Python function compute_tags which takes a list of strings tags and returns the "
        'sum of the lengths of the tags that end with "d".',
    ),
    Example(
        "json",
        "easy to foresee",
        "On Sunday Berin will buy honey, juice and mushrooms in Walbrook for at most 107 dollars. "
        "Write that as JSON with the keys items, budget, name and day.",
    ),
    Example(
        "edit",
        "mostly copying",
        'Change "Delek" to "Finn" everywhere.\n\nKin sent the camera to Delek. Every evening Delek '
        "painted a small clock near the station. The quiet student looked for a broken torch "
        "around the mountain after the rain had stopped. Kin saw Kin in front of the kitchen.",
    ),
    Example(
        "math",
        "digits are hard",
        "Keneko owns 52 pears. Then Keneko loses 35 of them. Keneko sells 13 pears at the market. "
        "Keneko gets 64 more from Bamesha. How many pears are left?",
    ),
    Example(
        "translate",
        "hard",
        "Write this in Spanish: Last night, Ilya hid a dirty ticket. In summer, Aisha uses the "
        "long ball, but there are twelve bottles on the beach. The bag is very full.",
    ),
    Example(
        "chat",
        "free, hard",
        "Tell me about Satilo the hedgehog and Tirela, and how they found a shell at the castle.",
    ),
)
