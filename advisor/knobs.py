"""The four knobs, each as a ladder: what every rung says, and which one is the answer.

A ladder holds only the rungs that have something to say. For the window ``None`` is an answer ("no
window"), so a rung that is present with ``None`` differs from a rung that is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from advisor import guide
from advisor.predict import Outlook
from advisor.schema import RUNGS, Knob, Rung
from advisor.situation import Situation
from dflash.taps import build_target_layer_ids

PAPER = "https://arxiv.org/abs/2602.06036"
PUBLISHED_BLOCK_SIZE = 16  # every published draft for 4B-9B targets but one (b10, Llama-3.1-8B)
PUBLISHED_NUM_TAPS = 5  # paper, Table 7: five tapped layers beat three
TRAINED_CONTEXT = 4096  # drafts without a window were trained on at most this many tokens
PUBLISHED_WINDOW = 4096  # the window of the drafts retrained in June 2026
BELONGS = "belongs to the checkpoint"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rung says, and why."""

    value: Any
    reason: str


Ladder = dict[Rung, Answer]


def block_size(situation: Situation, outlook: Outlook) -> Knob:
    """Free up to the trained block; measured evidence picks the fastest, 1 when none beats 1."""
    ladder: Ladder = {}
    fastest = _fastest(situation, outlook)
    if fastest is not None:
        measured = situation.tuned is not None or situation.costs is not None
        ladder["measured" if measured else "modelled"] = fastest
    draft = situation.checkpoint
    if draft and draft.block_size:
        reason = f"the draft was trained at {draft.block_size}, which is also its ceiling"
        ladder["checkpoint"] = Answer(draft.block_size, reason + _faster_elsewhere(situation))
    ladder.update(_published_block(situation))
    guided = guide.block_size(situation.params)
    if guided.known:
        ladder["guide"] = Answer(guided.value, guided.reason)
    ceiling = situation.trained_block_size
    knob = _settled(ladder, situation, tunable=True, unknown="give --draft, or --params")
    if ceiling is not None and knob.value is not None and knob.value > ceiling:
        reason = f"{knob.reason}; held to {ceiling}, the block size the draft was trained at"
        return Knob(ceiling, knob.rung, True, reason, knob.rungs)
    return knob


def target_layer_ids(situation: Situation) -> Knob:
    """Read from the checkpoint when serving; five uniform taps for a draft yet to be trained."""
    ladder: Ladder = {}
    layers, stand_in = _depth(situation)
    if situation.mode == "serve":
        draft, published = situation.checkpoint, situation.published
        if draft and draft.target_layer_ids:
            ladder["checkpoint"] = Answer(
                list(draft.target_layer_ids), f"{BELONGS}: its fc layer was trained on these layers"
            )
        if published and published.target_layer_ids:
            ladder["published"] = Answer(
                list(published.target_layer_ids),
                f"{BELONGS}; catalogue ({published.pair_id}): the layers it was trained on",
            )
    elif layers:
        ladder.update(_trained_taps(layers, stand_in))
    guided = guide.target_layer_ids(situation.params, situation.num_layers)
    if guided.known:
        ladder["guide"] = Answer(guided.value, guided.reason)
    elif layers:  # the guide's uniform rule, over the stand-in's depth
        guided = guide.target_layer_ids(situation.params, layers)
        ladder["guide"] = Answer(guided.value, guided.reason + stand_in)
    owned = situation.mode == "serve" and ("checkpoint" in ladder or "published" in ladder)
    unknown = "give --target, so that its number of layers is known"
    if situation.mode == "serve":
        unknown = f"{BELONGS}; give --draft"
    return _settled(
        ladder, situation, tunable=situation.mode == "train", unknown=unknown, owned=owned
    )


def sliding_window_size(situation: Situation) -> Knob:
    """Trained windows are read; a draft with full attention may be given one for long prompts."""
    ladder: Ladder = {}
    trained = _trained_window(situation) if situation.mode == "serve" else None
    if trained is not None:
        rung, window = trained
        ladder[rung] = Answer(window, f"{BELONGS}: trained with sliding-window layers")
    else:
        ladder.update(_free_window(situation))
    guided = guide.sliding_window_size(situation.params, situation.workload.prompt_tokens)
    if guided.known:
        ladder["guide"] = Answer(guided.value, guided.reason)
    return _settled(
        ladder,
        situation,
        tunable=trained is None,
        unknown="give --prompt-tokens",
        owned=trained is not None,
    )


def mask_token_id(situation: Situation) -> Knob:
    """Read from the checkpoint when serving; an unused embedding row for a draft to be trained."""
    ladder: Ladder = {}
    published = situation.published
    if situation.mode == "serve":
        draft = situation.checkpoint
        if draft and draft.mask_token_id is not None:
            reason = f"{BELONGS}: the embedding it learned to fill in"
            ladder["checkpoint"] = Answer(draft.mask_token_id, reason)
    if published and published.mask_token_id is not None:
        ladder["published"] = Answer(
            published.mask_token_id, f"catalogue ({published.pair_id}): what its draft uses"
        )
    elif situation.mode == "train":
        ladder.update(_free_token(situation))
    guided = guide.mask_token_id(situation.pad_token_id, situation.eos_token_ids)
    if guided.known:
        ladder["guide"] = Answer(guided.value, guided.reason)
    owned = situation.mode == "serve" and ("checkpoint" in ladder or "published" in ladder)
    unknown = f"{BELONGS}; give --draft" if situation.mode == "serve" else "give --tokenizer"
    return _settled(
        ladder, situation, tunable=situation.mode == "train", unknown=unknown, owned=owned
    )


def _settled(
    ladder: Ladder, situation: Situation, *, tunable: bool, unknown: str, owned: bool = False
) -> Knob:
    """Pick the rung. ``owned``: the checkpoint's value stands whatever the policy says."""
    present = [rung for rung in RUNGS if rung in ladder]
    if not present:
        return Knob(None, None, tunable, f"unknown: {unknown}", {})
    guided = situation.policy == "guide" and "guide" in ladder and not owned
    rung: Rung = "guide" if guided else present[0]
    rungs: dict[str, Any] = {name: ladder[name].value for name in present}
    if rung == "guide" and not (guided or tunable):
        # A trained-in value is never made up: without the checkpoint it is simply not known.
        return Knob(None, None, tunable, f"unknown: {unknown}", rungs)
    answer = ladder[rung]
    return Knob(answer.value, rung, tunable, answer.reason, rungs)


def _fastest(situation: Situation, outlook: Outlook) -> Answer | None:
    best = outlook.best
    here = situation.tuned is not None or situation.costs is not None
    if best is None or best.speedup is None or (situation.mode == "train" and not here):
        return None
    if best.speedup <= 1:
        reason = f"no block size beats plain decoding; the best is {best.speedup:.2f}x"
        return Answer(1, f"{reason} at {best.block_size}")
    how = "known" if best.source == "measured" else f"{best.source} from what is known"
    return Answer(best.block_size, f"fastest of those {how}: {best.speedup:.2f}x ({best.basis})")


def _faster_elsewhere(situation: Situation) -> str:
    """What a published sweep of this draft says against its trained block, if it does."""
    best = situation.published.fastest if situation.published else None
    trained = situation.trained_block_size
    if best is None or best.block_size == trained:
        return ""
    return f"; measured elsewhere it was fastest at {best.block_size}, so measure it here too"


def _published_block(situation: Situation) -> Ladder:
    published = situation.published
    best = published.fastest if published else None
    if situation.mode == "serve" and published and best is not None:
        sweep = ", ".join(f"{s.speedup:.2f}x at {s.block_size}" for s in published.speeds)
        block = best.block_size if best.speedup > 1 else 1
        return {"published": Answer(block, f"fastest of {sweep} ({published.speeds_basis})")}
    if situation.mode == "serve" and published and published.block_size:
        reason = f"catalogue ({published.pair_id}): the block size it was trained at"
        return {"published": Answer(published.block_size, reason)}
    if situation.mode == "serve" and situation.draft:
        return {}
    reason = (
        f"published drafts are trained at {PUBLISHED_BLOCK_SIZE}, and run well below it but not "
        f"above ({PAPER}, Table 8)"
    )
    return {"published": Answer(PUBLISHED_BLOCK_SIZE, reason)}


def _depth(situation: Situation) -> tuple[int | None, str]:
    """The target's depth, and a remark when it is a stand-in."""
    if situation.num_layers:
        return situation.num_layers, ""
    assumed = situation.assumed_depth
    may_assume = situation.mode == "train" or situation.policy == "guide"
    if assumed is None or not may_assume:
        return None, ""
    return assumed.num_layers, (
        f"; depth not given, {assumed.num_layers} layers assumed as in {assumed.target}"
    )


def _trained_taps(layers: int, stand_in: str) -> Ladder:
    for num_taps in range(min(PUBLISHED_NUM_TAPS, layers), 0, -1):
        try:
            taps = build_target_layer_ids(layers, num_taps)
        except ValueError:  # too shallow for that many
            continue
        reason = (
            f"{num_taps} taps spread over {layers} layers; five beat three in training "
            f"({PAPER}, Table 7){stand_in}"
        )
        return {"published": Answer(taps, reason)}
    return {}


def _trained_window(situation: Situation) -> tuple[Rung, int] | None:
    draft, published = situation.checkpoint, situation.published
    if draft is not None:
        kinds = draft.shape.layer_types or ()
        window = draft.shape.sliding_window
        return ("checkpoint", window) if window and "sliding_attention" in kinds else None
    if published and published.sliding_window and not published.full_attention:
        return "published", published.sliding_window
    return None


def _untouched_window(situation: Situation) -> Ladder:
    """Without a prompt length a draft with full attention stays as it is."""
    reason = (
        "trained with full attention on every layer; for prompts above "
        f"{TRAINED_CONTEXT} tokens give --prompt-tokens"
    )
    draft, published = situation.checkpoint, situation.published
    if draft is not None:
        broken = "sliding_attention" in (draft.shape.layer_types or ())  # and yet no window
        return {} if broken else {"checkpoint": Answer(None, reason)}
    if situation.mode == "serve" and published is not None and published.full_attention:
        return {"published": Answer(None, reason)}
    return {}


def _free_window(situation: Situation) -> Ladder:
    """What is said of a window that may be set: tuned here, else by the prompt's length."""
    ladder = _tuned_window(situation)
    if situation.workload.prompt_tokens is not None:
        ladder["published"] = _window_for(situation)
    else:
        ladder.update(_untouched_window(situation))
    return ladder


def _tuned_window(situation: Situation) -> Ladder:
    """What a tuning run here found for prompts about as long; it says nothing of others."""
    tuned, asked = situation.tuned, situation.workload.prompt_tokens
    if tuned is None or not tuned.windows or tuned.prompt_tokens is None:
        return {}
    if asked is not None and not tuned.prompt_tokens / 2 <= asked <= tuned.prompt_tokens * 2:
        return {}
    tried = ", ".join(map(str, tuned.windows))
    reason = f"fastest of none, {tried} on prompts of about {tuned.prompt_tokens} tokens"
    return {"measured": Answer(tuned.best.sliding_window_size, f"{reason} ({tuned.basis})")}


def _window_for(situation: Situation) -> Answer:
    prompt = situation.workload.prompt_tokens or 0
    if prompt <= TRAINED_CONTEXT:
        reason = f"the prompt's {prompt} tokens are within what full attention was trained on"
        return Answer(None, f"{reason} ({TRAINED_CONTEXT})")
    if situation.mode == "train":
        reason = (
            f"for prompts of {prompt} tokens: {PUBLISHED_WINDOW} on every layer but the last, as "
            "the drafts retrained in June 2026 have it"
        )
        return Answer(PUBLISHED_WINDOW, reason)
    reason = (
        f"{prompt} tokens are more than the {TRAINED_CONTEXT} such drafts were trained on; a "
        "window kept acceptance up in public measurements; it is worth measuring here"
    )
    return Answer(PUBLISHED_WINDOW, reason)


def _free_token(situation: Situation) -> Ladder:
    tokenizer = situation.tokenizer
    if tokenizer is None:
        return {}
    if tokenizer.mask_token_id is not None:
        return {"published": Answer(tokenizer.mask_token_id, "the tokenizer's own mask token")}
    rows = situation.target.shape.vocab_size if situation.target else None
    if tokenizer.num_tokens and rows and tokenizer.num_tokens < rows:
        reason = (
            f"the first embedding row past the tokenizer's {tokenizer.num_tokens} tokens, of "
            f"{rows}: never written by the model, as published drafts choose theirs"
        )
        return {"published": Answer(tokenizer.num_tokens, reason)}
    return {}
