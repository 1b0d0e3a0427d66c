"""The verdict of one race as markup: the large number, the sentence, the facts under it.

Knows runs and words. Every number carries its badge; text from outside is escaped.
"""

from __future__ import annotations

from html import escape

from app import view
from app.captions import no_speedup
from app.race import BASELINE, DFLASH
from app.runs import Run
from app.stage import StageEnd
from dflash.metrics import Comparison, MedianInterval
from dflash.schema import SpecStats, Trace

_EVEN = view.factor(1.0)


def headline(run: Run, repeats: MedianInterval | None = None) -> str:
    """The block above the lanes once a race has ended or stopped.

    ``repeats`` are the speedups of every run of this very request, this one included.
    """
    comparison = run.comparison
    big, sentence = view.factor(comparison.speedup), _verdict(run, comparison)
    losing = " losing" if (comparison.speedup or 1) < 1 and big != _EVEN else ""
    facts = "".join(
        f'<div class="fact"><dt>{name}</dt><dd>{value}</dd></div>'
        for name, value in _facts(run, comparison)
    )
    spread = _repeats(repeats) if comparison.speedup else ""
    where = f'<p class="where">{escape(_where(run))}{spread}</p>'
    return (
        f'<section class="headline" aria-label="Result"><div class="big">'
        f'<span class="big-number{losing}">{big}</span>'
        f'<span class="big-label">decode speedup {view.badge(run.source, run.where)}</span></div>'
        f'<div class="big-words"><p class="sentence">{sentence}</p>{where}</div>'
        f'<dl class="facts">{facts}</dl></section>'
    )


def stage_end(run: Run) -> StageEnd:
    """What the stage says when both lanes have ended."""
    comparison = run.comparison
    speedup = comparison.speedup
    same = lossless_words(run, comparison)
    parts = [f"DFlash: {view.factor(speedup)} decode speed" if speedup else "", same]
    say = " · ".join(part for part in parts if part)
    if run.failures:
        say += f": {run.failed_words}"
    notes = (_ending(run.baseline, run.stopped), _ending(run.dflash, run.stopped))
    by_token = comparison.difference_unit == "token" and not is_sampled(run)
    differs = comparison.first_difference if by_token else None
    return StageEnd(say=say, notes=notes, differs=differs, aloud=f"Finished. {say}.")


def lossless_words(run: Run, comparison: Comparison) -> str:
    """Whether the texts are the same, in words."""
    if run.failures:
        return "not compared"
    left, right = comparison.baseline.num_output_tokens, comparison.dflash.num_output_tokens
    if comparison.first_difference is not None:
        if is_sampled(run):
            return "same odds, another draw"
        unit = comparison.difference_unit
        return f"differs from {unit} {comparison.first_difference + 1}"
    if comparison.outputs_match:
        return f"identical text, {right} of {left} tokens" if left else "identical text"
    if comparison.num_compared:
        common = view.count(comparison.num_compared, comparison.difference_unit)
        return f"identical as far as both got, {common}"
    return "nothing to compare"


def texts_part(run: Run) -> bool:
    """Whether two texts that should be the same are not."""
    return run.comparison.first_difference is not None and not is_sampled(run)


def is_sampled(run: Run) -> bool:
    """Whether the texts are random draws: then only their distribution is the same."""
    return run.dflash.request.sampling.temperature > 0


def _verdict(run: Run, comparison: Comparison) -> str:
    speedup = comparison.speedup
    left, right = comparison.baseline, comparison.dflash
    if run.failures:
        return escape(" ".join(run.failures.values()))
    if speedup is None:
        return no_speedup(run)
    spec = right.spec
    if spec is None or spec.tau is None:
        return _without_tau(run, spec)
    per_pass = f"one pass of the target yielded {spec.tau:.1f} tokens on average"
    at_block = f" at {run.block_words}" if run.block_words else ""
    where = f"{at_block} {'on these servers' if run.is_served else 'on this machine'}"
    if view.factor(speedup) == _EVEN:
        return f"DFlash gains nothing for this text{where}: {per_pass}, just as many as it needs."
    if speedup > 1:
        return (
            f"The same model wrote {view.rate(right.output_tps)} instead of "
            f"{view.rate(left.output_tps)}, because {per_pass}.{_beyond(speedup, spec.tau, run)}"
        )
    needed = _needed(speedup, spec.tau)
    return f"DFlash is not worth it for this text{where}: {per_pass}. It would need {needed}."


def _needed(speedup: float, tau: float) -> str:
    """What would break even, of the same totals as the speedup, so that both tell one story."""
    needed = f"{tau / speedup:.1f}"
    return needed if needed != f"{tau:.1f}" else "a little more"


def _beyond(speedup: float, tau: float, run: Run) -> str:
    """A warning where the figure cannot be DFlash's: its cycle holds a pass of the target, which
    is no quicker than a single step."""
    if speedup <= tau or run.is_served:
        return ""
    return (
        f" More than {tau:.1f}× cannot come from that: something else kept this machine busy "
        "during one of the lanes. Run it again."
    )


def _without_tau(run: Run, spec: SpecStats | None) -> str:
    if run.block_size == 1:
        return "Both lanes ran one token at a time (block 1): this is what noise looks like."
    if spec is None:
        return "How many drafts were accepted was not reported."
    return (
        f"{view.percent(spec.acceptance_rate)} of the drafts were accepted; the cycles were not "
        "counted, so tokens per cycle are not known."
    )


def _repeats(repeats: MedianInterval | None) -> str:
    if repeats is None or repeats.n < 2:
        return ""
    span = ""
    if repeats.low is not None and repeats.high is not None:
        span = f", 95 % interval {view.factor(repeats.low)} to {view.factor(repeats.high)}"
    return f"<br>{repeats.n} runs of this: median {view.factor(repeats.median)}{span}"


def _facts(run: Run, comparison: Comparison) -> list[tuple[str, str]]:
    left, right = comparison.baseline, comparison.dflash
    return [
        ("DFlash", run.told(DFLASH, view.rate(right.output_tps))),
        ("one at a time", run.told(BASELINE, view.rate(left.output_tps))),
        (f"tokens per cycle, {view.term('τ')}", run.told(DFLASH, _tau_fact(run, right.spec))),
        ("end to end", view.factor(comparison.end_to_end_speedup)),
        (
            view.term("TTFT"),
            f"{run.told(DFLASH, view.milliseconds(right.ttft_s))} "
            f"<small>/ {run.told(BASELINE, view.milliseconds(left.ttft_s))}</small>",
        ),
        (
            "lossless",
            f"{_lossless_mark(run, comparison)} {escape(lossless_words(run, comparison))}",
        ),
    ]


def _tau_fact(run: Run, spec: SpecStats | None) -> str:
    if spec is None:
        return "not reported"
    notes = [f"of {run.shown_block}"] if run.shown_block else []
    if spec.source == "counters":
        notes.append("from the server's counters")
    if spec.tau is None:
        notes = [f"{view.percent(spec.acceptance_rate)} of drafts accepted"]
    number = "not reported" if spec.tau is None else f"{spec.tau:.2f}"
    return f"{number} <small>{escape(', '.join(notes))}</small>" if notes else number


def _lossless_mark(run: Run, comparison: Comparison) -> str:
    if comparison.first_difference is not None and is_sampled(run):
        return '<span class="mark" aria-hidden="true">≈</span> '
    if comparison.first_difference is not None:
        return '<span class="mark bad" aria-hidden="true">✕</span> '
    if comparison.num_compared:
        return '<span class="mark good" aria-hidden="true">✓</span> '
    return '<span class="mark" aria-hidden="true">–</span> '


def _where(run: Run) -> str:
    info = run.dflash.engine
    sampling = run.dflash.request.sampling
    decoding = "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}"
    made_by = (info.version, info.device) if run.is_served else (info.device, info.dtype)
    parts = [*filter(None, (run.pair_id, run.block_words)), decoding, *made_by]
    if run.stopped:
        parts.insert(0, "stopped half way")
    if run.where:
        parts.append(run.where)
    return " · ".join(parts)


def _ending(trace: Trace, stopped: bool) -> str:
    finished = trace.finished
    if finished is None:
        return "stopped here" if stopped else ""
    if finished.finish_reason == "length":
        return "ended at the token limit"
    return "ended by itself"
