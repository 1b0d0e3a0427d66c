"""The advice beside the playground's controls, for the chosen pair, this machine and the prompt.

Knows the advisor, the pool of opened engines and how long a prompt is. Knows no layout.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from advisor.schema import Recommendation
from app.advice_form import AdviceForm, ask
from app.form import OWN_PAIR
from app.session import EnginePool, PairChoice
from dflash.presets import load_pair
from dflash.schema import Message

_ROOT = Path(__file__).resolve().parent.parent


def advice_for(pool: EnginePool, choice: PairChoice, prompt: str) -> Recommendation:
    """What the advisor says to this prompt with this pair here. Raises ``DFlashError``."""
    own = choice.pair_id == OWN_PAIR
    return ask(
        AdviceForm(
            draft=choice.draft if own else choice.pair_id,
            target=choice.target if own else None,
            prompt_tokens=prompt_tokens(pool, choice, prompt),
            hardware="auto",
        )
    )


def prompt_tokens(pool: EnginePool, choice: PairChoice, prompt: str) -> int | None:
    """The prompt's length by the pair's own tokenizer: exact (template included) once the model
    is open, the bare text's before that, ``None`` while no tokenizer is at hand."""
    if not prompt.strip():
        return None
    engine = pool.peek(choice)
    if engine is not None:
        return len(engine.encode((Message("user", prompt),)))
    tokenizer = _tokenizer(choice.pair_id)
    return None if tokenizer is None else len(tokenizer.encode(prompt).ids)


@lru_cache(maxsize=8)
def _tokenizer(pair_id: str) -> Tokenizer | None:
    """A shipped target's tokenizer; reading it needs no torch."""
    if pair_id == OWN_PAIR:
        return None
    path = load_pair(pair_id).target.path
    file = _ROOT / path / "tokenizer.json" if path else None
    return Tokenizer.from_file(str(file)) if file is not None and file.is_file() else None
