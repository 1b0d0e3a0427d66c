"""Looking closer, on a real tiny pair: the odds reach the stage, a difference reaches a verdict."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tiny_models import build_draft, build_target
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from app.finished import replay_text
from app.form import OWN_PAIR, PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.looking import looking_views
from app.microscope_view import microscope
from app.open_pair import open_pair
from app.runs import Run, load_run
from app.session import EnginePool, PairChoice, Sessions, Stopped
from dflash.close_look import Candidate, Divergence, SlotOdds
from dflash.metrics import run_stats


def save_tokenizer(folder, size: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: size - 1]
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


@pytest.fixture(scope="module")
def handlers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    target = build_target("llama")
    target.save_pretrained(folder / "target")
    build_draft(target, block_size=8).save_pretrained(folder / "draft")
    save_tokenizer(folder / "target", target.config.vocab_size)
    handlers = PlaygroundHandlers(EnginePool(open_pair), Sessions(), lambda: "a test machine")
    handlers.folder = folder
    return handlers


def form(handlers, **changes):
    values = {
        "pair_id": OWN_PAIR, "target": str(handlers.folder / "target"),
        "draft": str(handlers.folder / "draft"), "prompt": "Hi there", "block_size": 8,
        "max_new_tokens": 48, "temperature": 0.0, "seed": 1, "top_k": 0, "top_p": 1.0,
        "enable_thinking": False,
    }  # fmt: skip
    return PlaygroundForm(**{**values, **changes})


def tampered(run: Run) -> Run:
    """The run with one of its tokens changed."""
    trace = run.dflash
    cycle = trace.events[3]
    wrong = dataclasses.replace(
        cycle, emitted_ids=(*cycle.emitted_ids[:-1], (cycle.emitted_ids[-1] + 1) % 90)
    )
    events = (*trace.events[:3], wrong, *trace.events[4:])
    return dataclasses.replace(run, dflash=dataclasses.replace(trace, events=events))


def test_a_real_pair_races_to_the_same_text(handlers):
    last = list(handlers.on_run(form(handlers), "a"))[-1]
    assert "identical text, 48 of 48 tokens" in last.headline
    assert "DFlash active" in "".join(
        v.pair_card or "" for v in handlers.on_run(form(handlers), "a")
    )


def test_the_odds_of_every_drafting_cycle_reach_the_stage(handlers):
    list(handlers.on_run(form(handlers), "a"))
    session = handlers.sessions.of("a")
    before = session.stage_text
    last = list(handlers.on_look("a"))[-1]
    assert last.stage.startswith(before) and "texts are the same" in last.look
    told = [json.loads(line) for line in last.stage[len(before) :].splitlines()]
    drafted = [c for c in session.run.dflash.cycles if c.draft_ids]
    assert [line["c"] for line in told] == list(range(len(drafted)))
    assert all(len(t["x"]) == len(c.draft_ids) for t, c in zip(told, drafted, strict=True))


def test_the_odds_come_unasked_after_a_race_and_travel_with_the_run(handlers):
    list(handlers.on_run(form(handlers), "f"))
    last = list(handlers.on_race_over("f"))[-1]
    run = handlers.sessions.of("f").run
    drafted = [c for c in run.dflash.cycles if c.draft_ids]
    assert [len(odds) for odds in run.odds] == [len(c.draft_ids) for c in drafted]
    assert last.stage.count('"k":"o"') == len(drafted)
    assert last.status is None and last.look is None and last.running is None
    opened = load_run(json.loads(last.takeaway)["json"], source="opened")
    assert replay_text(opened).count('"k":"o"') == len(drafted)
    assert opened.odds[0][0].draft_probability == pytest.approx(
        run.odds[0][0].draft_probability, abs=1e-5
    )
    assert list(handlers.on_race_over("f")) == []


def test_a_look_that_nobody_asked_for_gives_way_to_whoever_waits(handlers):
    list(handlers.on_run(form(handlers), "g"))
    handlers.on_pressed("somebody else")
    assert list(handlers.on_race_over("g")) == []
    handlers.sessions.drop("somebody else")
    found = handlers.on_race_over("g")
    session = handlers.sessions.of("g")
    before = session.stage_text
    session.stop.set()
    assert list(found) == [] and session.stage_text == before
    assert not handlers.pool.device.locked() and session.run.odds == ()


def test_a_look_stops_within_one_cycle_and_leaves_the_run_as_it_was(handlers):
    list(handlers.on_run(form(handlers), "i"))
    session, closed = handlers.sessions.of("i"), []

    def found():
        try:
            yield from [(SlotOdds(0.5, None, None),)] * 9
        finally:
            closed.append(True)

    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        list(looking_views(session, session.run, found(), lambda: next(asked), unasked=True))
    assert closed and session.run.odds == ()


def test_a_difference_is_shown_unasked(handlers):
    list(handlers.on_run(form(handlers), "h"))
    session = handlers.sessions.of("h")
    session.run = tampered(session.run)
    assert "Where the texts part" in list(handlers.on_race_over("h"))[-1].look


def test_a_difference_is_recomputed_and_judged(handlers):
    """A run whose record was tampered with: the target never wanted that token, so: a fault."""
    list(handlers.on_run(form(handlers), "b"))
    session = handlers.sessions.of("b")
    session.run = tampered(session.run)
    look = list(handlers.on_look("b"))[-1].look
    assert "Where the texts part" in look and "top" not in look


def test_sampled_texts_are_never_called_a_fault(handlers):
    last = list(handlers.on_run(form(handlers, temperature=1.0, max_new_tokens=60), "c"))[-1]
    assert "differs" not in last.headline
    look = list(handlers.on_look("c"))[-1].look
    assert "draw at random" in look or "the same" in look


def test_a_recorded_run_cannot_be_looked_at(handlers):
    assert "nothing to look at" in list(handlers.on_look("nobody"))[-1].status.lower()


def test_the_verdict_names_the_gap_and_shows_markup_as_text(handlers):
    list(handlers.on_run(form(handlers), "d"))
    run = dataclasses.replace(handlers.sessions.of("d").run, words={1: "<b>", 2: " x"})
    near = (Candidate(1, 3.0, 0.4), Candidate(2, 2.99, 0.4))
    shown = microscope(run, Divergence(3, 1, 2, near, tuple(reversed(near))))
    assert "numerical tie" in shown and "0.01" in shown
    assert "<b>" not in shown.replace('<p class="verdict-warn"><b>', "") and "&lt;b&gt;" in shown


def test_raced_lanes_are_as_fast_as_lanes_that_run_alone(handlers):
    """The race costs the engine nothing that its clock sees, beyond the noise of this machine."""
    engine = handlers.pool.peek(
        PairChoice(OWN_PAIR, str(handlers.folder / "target"), str(handlers.folder / "draft"))
    )
    request = form(handlers, max_new_tokens=100).request()
    ratios = []
    for _ in range(3):
        alone = [e.t_s for e in engine.stream(request)][-1]
        list(handlers.on_run(form(handlers, max_new_tokens=100), "e"))
        raced = run_stats(handlers.sessions.of("e").run.dflash)
        ratios.append((raced.ttft_s + raced.decode_s) / alone)
    assert min(ratios) < 1.1
