"""The playground's form as values. Knows what a request needs; knows no page."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from app.session import PairChoice
from dflash.errors import DFlashError
from dflash.schema import Message, Request, SamplingParams

OWN_PAIR = "my own"


@dataclass(frozen=True, slots=True)
class PlaygroundForm:
    """The form as the page sends it, in input order."""

    pair_id: str
    target: str
    draft: str
    prompt: str
    block_size: float
    max_new_tokens: float
    temperature: float
    seed: float
    top_k: float
    top_p: float
    enable_thinking: bool

    def choice(self) -> PairChoice:
        """The pair that was picked. Raises ``DFlashError`` for half a pair of one's own."""
        if self.pair_id != OWN_PAIR:
            return PairChoice(self.pair_id)
        if not self.target.strip():
            raise DFlashError("no target was given.", "Type its folder or its hub id.")
        return PairChoice(OWN_PAIR, self.target.strip(), self.draft.strip())

    def request(self) -> Request:
        """The request. Raises ``DFlashError`` naming the field that is off."""
        try:
            return Request(
                messages=(Message("user", self.prompt or ""),),
                sampling=SamplingParams(
                    temperature=float(self.temperature),
                    top_p=float(self.top_p),
                    top_k=int(self.top_k),
                    seed=int(self.seed),
                    max_new_tokens=int(self.max_new_tokens),
                    enable_thinking=bool(self.enable_thinking),
                ),
                block_size=int(self.block_size),
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise DFlashError(f"{str(error).rstrip('.')}.") from error

    def with_block(self, block_size: int) -> PlaygroundForm:
        """The same form at another block size."""
        return replace(self, block_size=block_size)

    @classmethod
    def of_run(cls, request: Request, choice: PairChoice) -> PlaygroundForm:
        """The form that gives a request again."""
        sampling = request.sampling
        return cls(
            pair_id=choice.pair_id,
            target=choice.target,
            draft=choice.draft,
            prompt=request.messages[-1].content,
            block_size=request.block_size,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            enable_thinking=sampling.enable_thinking,
        )


FORM_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(PlaygroundForm))
