"""One sentence under each chart, made from the run's data by rules. Knows runs and words.

A caption says what can be read off this run, with its numbers; when it is cut short or too short
to say anything, it says that instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from app import view
from app.progress import tokens_at
from app.runs import Run
from app.whatif import Prediction, cycle_cost, predictions
from dflash.metrics import MedianInterval, acceptance_by_position, tau_at
from dflash.schema import Cycle

_FEW_CYCLES = 3


def nothing_to_draw(run: Run) -> str:
    """Why there is no figure of the blocks."""
    if run.is_served:
        return (
            f"{run.dflash.engine.version} reports totals for a whole answer, not single cycles, so "
            "this cannot be drawn; an engine of this page does."
        )
    if run.block_size == 1:
        return "Block size 1 drafts nothing, so there is nothing to draw here."
    if run.failures:
        return no_speedup(run)
    return "The answer ended before there was anything to draw."


def no_speedup(run: Run) -> str:
    """Why one lane's pace is not held against the other's."""
    if run.failures:
        return f"Not compared: {run.failed_words}."
    if run.stopped:
        return "Stopped too early to tell."
    comparison = run.comparison
    num_tokens = comparison.dflash.num_output_tokens
    if num_tokens == 1:
        return "The model ended its answer with its first token; there was nothing to speed up."
    if run.is_served and num_tokens is None:
        return "The server did not count its tokens, so its pace is not known."
    if comparison.are_long_enough:
        return "The text of one lane came all at once, so its pace is not known."
    return "The answer is too short to tell a speedup."


def tokens_over_time(run: Run) -> str:
    """How far both were at the moment the first of them ended."""
    left, right = run.baseline, run.dflash
    if run.failures or not left.events or not right.events:
        return no_speedup(run)
    end_s = min(left.events[-1].t_s, right.events[-1].t_s)
    counts = [tokens_at(trace, end_s) for trace in (left, right)]
    if 0 in counts:
        return "One lane did not count its tokens on the way, so the two are not compared."
    step = "each step of the green line is one cycle"
    if run.is_served:
        step = "tokens as the servers counted them, at the moments their text arrived"
    return (
        f"After {view.duration(end_s)} of its own time DFlash had written "
        f"{view.count(counts[1], 'token')} and the plain lane {view.count(counts[0], 'token')}; "
        f"{step}."
    )


def cycle_time(run: Run) -> str:
    """What a cycle costs and yields, in steps."""
    step, cycle = cycle_cost(run.baseline), cycle_cost(run.dflash)
    spec = run.comparison.dflash.spec
    if step is None or cycle is None or spec is None or spec.tau is None or step.total_s <= 0:
        return nothing_to_draw(run)
    steps = cycle.total_s / step.total_s
    per_token = steps / spec.tau
    verdict = "cheaper" if per_token < 1 else "dearer"
    drafting = view.percent(cycle.draft_s / cycle.total_s)
    return (
        f"A median cycle costs {steps:.1f} median steps ({drafting} of it drafting) and yields "
        f"{spec.tau:.1f} tokens, so a token costs {per_token:.2f} steps: {verdict} than one at a "
        f"time. Break-even is {steps:.1f} tokens per cycle.{whole_race(run, per_token < 1)}"
    )


def whole_race(run: Run, is_faster: bool) -> str:
    """What to add where medians say faster (or not) and the race itself says the other."""
    speedup = run.comparison.speedup
    if speedup is None or (speedup > 1) == is_faster:
        return ""
    return (
        f" The whole race gave {view.factor(speedup)}: single cycles or steps took longer than "
        "these medians."
    )


def acceptance_positions(run: Run) -> str:
    """Where guesses stop paying, and what a smaller block would have kept."""
    positions = acceptance_by_position(run.comparison.dflash.spec)
    if not positions:
        return _no_acceptance(run)
    fallen = next((k for k, share in enumerate(positions, 1) if share < 0.5), None)
    if fallen is None:
        return (
            f"Even the last position ({len(positions)}) was accepted in at least half of the "
            "cycles: this text is easy to foresee, and a larger block might pay if there is one."
        )
    smaller = max(fallen, 2)
    full, cut = tau_at(positions, len(positions) + 1), tau_at(positions, smaller)
    assert full is not None and cut is not None
    start = (
        "Even the first guess was accepted in fewer than half of the cycles"
        if fallen == 1
        else f"From position {fallen} on, guesses were accepted in fewer than half of the cycles"
    )
    if smaller >= len(positions) + 1:
        return f"{start}."
    return (
        f"{start}; a block of {smaller} would have kept {view.percent(cut / full)} of the tokens "
        f"per cycle{_cheaper(run, smaller)}."
    )


def accepted_per_cycle(run: Run) -> str:
    """The best and the worst stretch."""
    cycles = _drafted(run)
    if len(cycles) < _FEW_CYCLES:
        return _too_few(cycles)
    values = [c.num_accepted for c in cycles]
    width = max(len(c.draft_ids) for c in cycles)
    full = sum(c.num_accepted == len(c.draft_ids) for c in cycles)
    none = values.count(0)
    return (
        f"Of {len(cycles)} cycles, {full} kept the whole block and {none} kept no guess at all; "
        f"the mean is {sum(values) / len(values):.1f} of {width}."
    )


def heat_map(run: Run) -> str:
    """The text at which a block died earliest."""
    cycles = _drafted(run)
    if len(cycles) < _FEW_CYCLES:
        return _too_few(cycles)
    worst = min(range(len(cycles)), key=lambda n: cycles[n].num_accepted)
    cycle = cycles[worst]
    if cycle.num_accepted == len(cycle.draft_ids):
        return "Every block was kept whole."
    return (
        f"Cycle {worst + 1} ended earliest: the draft guessed "
        f"“{run.word(cycle.draft_ids[cycle.num_accepted]).strip() or '␣'}” where the target wrote "
        f"“{run.word(cycle.bonus_id).strip() or '␣'}”. Grey squares were drafted for nothing."
    )


def histogram(run: Run) -> str:
    """The commonest outcome of a cycle."""
    spec = run.comparison.dflash.spec
    if spec is None or not spec.acceptance_histogram or not spec.num_cycles or not spec.tau:
        return _no_acceptance(run)
    counts = spec.acceptance_histogram
    mode = max(range(len(counts)), key=lambda k: counts[k])
    return (
        f"The commonest outcome is {view.count(mode, 'accepted draft')} "
        f"({counts[mode]} of {view.count(spec.num_cycles, 'cycle')}). Tokens per cycle are "
        f"1 + the mean of this: {spec.tau:.2f}."
    )


def waterfall(run: Run) -> str:
    """How even the cycles are, and what the first one pays."""
    cycle, step = cycle_cost(run.dflash), cycle_cost(run.baseline)
    cycles = _drafted(run)
    if step is None or not cycles:
        return nothing_to_draw(run)
    if cycle is None:
        return _too_few(cycles)
    first_s = cycles[0].draft_s + cycles[0].verify_s
    sentence = (
        f"A median cycle takes {view.milliseconds(cycle.total_s)}, one plain step "
        f"{view.milliseconds(step.total_s)}"
    )
    if first_s > 1.3 * cycle.total_s:
        sentence += (
            f"; the first took {view.milliseconds(first_s)}, because its draft pass also reads "
            "the prompt's states"
        )
    return sentence + "."


def wasted_work(run: Run) -> str:
    """Drafted, kept, and target passes saved."""
    cycles = _drafted(run)
    if not cycles:
        return nothing_to_draw(run)
    drafted = sum(len(c.draft_ids) for c in cycles)
    kept = sum(c.num_accepted for c in cycles)
    tokens = sum(len(c.emitted_ids) for c in run.dflash.cycles)
    passes = len(run.dflash.cycles)
    return (
        f"{drafted:,} tokens were drafted and {kept:,} kept ({view.percent(kept / drafted)}); the "
        f"target ran {passes:,} times for {tokens:,} tokens instead of {tokens:,} times."
    )


def speedup_so_far(run: Run) -> str:
    """The settled speedup."""
    speedup = run.comparison.speedup
    if speedup is None:
        return no_speedup(run)
    if speedup < 1:
        return f"DFlash ended {view.factor(1 / speedup)} slower: the line ends below break-even."
    return (
        f"Over the whole answer, first token excluded, DFlash was {view.factor(speedup)} as fast."
    )


def over_repeats(spread: MedianInterval | None) -> str:
    """How far the speedups of one request lie apart."""
    if spread is None:
        return "Run a race here: every repeat of the same request adds a point and an interval."
    if spread.low is None or spread.high is None:
        return (
            f"One run of this request so far, {view.factor(spread.median)}; run it again to see "
            "how far repeats lie apart."
        )
    return (
        f"{spread.n} runs of this request: median {view.factor(spread.median)}, 95 % interval "
        f"{view.factor(spread.low)} to {view.factor(spread.high)} (the band)."
    )


def what_if(options: Sequence[Prediction], block_size: int) -> str:
    """The slider's answer in one sentence."""
    chosen = next(p for p in options if p.block_size == block_size)
    top = max(options, key=lambda p: p.speedup)
    if block_size == 1:
        return "Block 1 is one token at a time: nothing is drafted, the speedup is 1."
    fate = "faster" if chosen.speedup >= 1 else "slower"
    amount = chosen.speedup if chosen.speedup >= 1 else 1 / chosen.speedup
    sentence = (
        f"Block {block_size} would give {chosen.tau:.1f} tokens per cycle and "
        f"{view.rate(chosen.output_tps)}: {view.factor(amount)} {fate} than one at a time; it "
        f"needs {chosen.tau_needed:.1f} tokens per cycle to break even."
    )
    if top.block_size != block_size:
        sentence += f" Fastest would be block {top.block_size} ({view.factor(top.speedup)})."
    if block_size < max(p.block_size for p in options):
        # docs/LOG.md: 6 to 12 % on the demo pair
        sentence += " An upper estimate: the same slots accept a little more in a larger block."
    return sentence


def _cheaper(run: Run, block_size: int) -> str:
    options = {p.block_size: p for p in predictions(run)}
    full = options.get(run.block_size)
    if block_size not in options or full is None or full.cycle_s <= 0:
        return ""
    saved = 1 - options[block_size].cycle_s / full.cycle_s
    return f" at {view.percent(saved)} less time per cycle (modelled)" if saved > 0.01 else ""


def _too_few(cycles: Sequence[Cycle]) -> str:
    return f"Only {view.count(len(cycles), 'cycle')}: too few to tell a pattern."


def _drafted(run: Run) -> list[Cycle]:
    return [c for c in run.dflash.cycles if c.draft_ids]


def _no_acceptance(run: Run) -> str:
    if run.is_served:
        return "The server did not report acceptance by position, so this cannot be drawn."
    return nothing_to_draw(run)
