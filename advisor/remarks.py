"""What an answer must say beside its numbers. The config doctor's rules stand elsewhere.

Each remark is one function that returns findings; none of them changes the answer.
"""

from __future__ import annotations

from advisor import cost
from advisor.measuring import measuring
from advisor.predict import Outlook, Prediction
from advisor.schema import Finding, Hardware, Knob
from advisor.situation import Situation
from dflash.presets import preset_ids

NOTABLE_GAIN = 1.10  # how much better a modelled block must be to be worth a remark
MEMORY_SHARE = 0.95  # of a machine's memory that a pair can use


def beyond_trained(situation: Situation, view: Outlook) -> list[Finding]:
    """Block sizes that were measured but that the draft was not trained for."""
    if not view.beyond_trained:
        return []
    blocks = ", ".join(str(block) for block in view.beyond_trained)
    trained = situation.trained_block_size
    return [
        Finding(
            "block-size.above-trained",
            "warning",
            "block_size",
            f"The costs also cover block sizes {blocks}, but the draft was trained at {trained}.",
            f"They are left out: engines clamp or refuse more than {trained}.",
            "https://github.com/noonghunna/club-3090/issues/759",
        )
    ]


def rising_acceptance(situation: Situation) -> list[Finding]:
    """Acceptance by position that cannot be unconditional."""
    rates = situation.tau_per_position or ()
    for k, (before, after) in enumerate(zip(rates, rates[1:], strict=False), start=2):
        if after > before:
            return [
                Finding(
                    "acceptance.rising",
                    "warning",
                    "tau_per_position",
                    f"Position {k} is accepted more often ({after:g}) than position {k - 1} "
                    f"({before:g}), which unconditional acceptance cannot be.",
                    "Count a position as accepted only when all before it were too.",
                )
            ]
    return []


def faster_predicted(
    situation: Situation, view: Outlook, knob: Knob, chosen: Prediction | None
) -> list[Finding]:
    """A block size that the model expects to be clearly faster than the one on a higher rung."""
    best = view.best
    if best is None or chosen is None or best.speedup is None or chosen.speedup is None:
        return []
    if knob.rung in ("measured", "modelled") or best.speedup < NOTABLE_GAIN * chosen.speedup:
        return []
    return [
        Finding(
            "block-size.faster-predicted",
            "note",
            "block_size",
            f"The cost model expects {best.speedup:.2f}x at block size {best.block_size} and "
            f"{chosen.speedup:.2f}x at {chosen.block_size}.",
            f"Measure both: {measuring(situation, '--tune')}",
            best.basis,
        )
    ]


def faster_published(situation: Situation, knob: Knob) -> list[Finding]:
    """A published sweep of this draft that was clearly faster at another block size."""
    published = situation.published
    best = published.fastest if published else None
    if published is None or best is None or knob.rung in ("measured", "published"):
        return []
    ours = next((s.speedup for s in published.speeds if s.block_size == knob.value), None)
    if ours is None or best.speedup < NOTABLE_GAIN * ours:
        return []
    return [
        Finding(
            "block-size.faster-published",
            "note",
            "block_size",
            f"Measured elsewhere, this pair ran at {best.speedup:.2f}x at block size "
            f"{best.block_size} and at {ours:.2f}x at {knob.value} ({published.speeds_basis}).",
            f"What holds here depends on this machine: {measuring(situation, '--tune')}",
            published.source,
        )
    ]


def assumed_depth(situation: Situation, knob: Knob) -> list[Finding]:
    """Taps that rest on the depth of another target of that size."""
    assumed = situation.assumed_depth
    if assumed is None or situation.num_layers or "assumed" not in knob.reason:
        return []
    return [
        Finding(
            "target.depth-assumed",
            "note",
            "target_layer_ids",
            f"The target's depth was not given; {assumed.num_layers} layers are assumed, as "
            f"{assumed.target} has. Targets of one size differ in depth.",
            "Give --target to get the layers of the real one.",
        )
    ]


def does_not_fit(situation: Situation, memory: cost.MemoryNeed | None) -> list[Finding]:
    """More memory than the machine has."""
    hardware = situation.hardware
    if memory is None or hardware is None or not hardware.memory_bytes:
        return []
    have = hardware.memory_bytes * hardware.num_devices
    if memory.total <= have * MEMORY_SHARE:
        return []
    shape = situation.target_shape
    known = memory.complete and (shape.dtype is not None or shape.bits_per_weight is not None)
    return [
        Finding(
            "memory.does-not-fit",
            "error" if known else "warning",
            "memory",
            f"The pair needs about {memory.total / 1e9:.1f} GB; {hardware.name} has "
            f"{have / 1e9:.1f} GB.",
            "Use a quantised target, a shorter context, or fewer sequences at once.",
            "weights, both caches, taps and one block of logits",
        )
    ]


def costs_at_one(situation: Situation) -> list[Finding]:
    """Measured costs say nothing of how many sequences ran; the answer takes them as they are."""
    sequences = situation.workload.concurrency
    if situation.costs is None or sequences == 1:
        return []
    return [
        Finding(
            "costs.concurrency",
            "note",
            "costs",
            f"The costs are taken as measured with {sequences} sequences at once; those of one "
            "sequence would promise too much.",
            f"Measure them at concurrency {sequences}.",
            "https://github.com/vllm-project/vllm/issues/42505",
        )
    ]


def unknown_machine(situation: Situation) -> list[Finding]:
    """A machine whose bandwidth nobody published: nothing is modelled for it."""
    hardware = situation.hardware
    if hardware is None or hardware.bandwidth_bytes_per_s is not None:
        return []
    return [
        Finding(
            "hardware.unknown",
            "note",
            "hardware",
            f"{hardware.name} is not in the catalogue, so its speed is not modelled.",
            f"Either name a similar machine with --hardware{_classes(hardware)}, or measure this "
            f"one: {measuring(situation, '--calibrate')}",
        )
    ]


def _classes(hardware: Hardware) -> str:
    """The classes of machines that a CPU may be likened to; nothing is assumed from them."""
    if hardware.kind != "cpu":
        return ""
    return f" ({', '.join(i for i in preset_ids('hardware') if i.startswith('cpu-'))})"
