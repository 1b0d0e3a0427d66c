"""From what was typed to a situation: reads the files named, the catalogue, the measurements.

Knows where things are found; knows no rule and no formula. Raises ``DFlashError`` children, each
fit for one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

from advisor import sources
from advisor.catalog import hardware_named, load_hardware, match_target
from advisor.check import check_case
from advisor.evidence_files import MAX_BLOCK_SIZE, EvidenceError
from advisor.measured import Measured, from_files, from_store
from advisor.predict import tau_block_size
from advisor.published import (
    Known,
    completed,
    find_known,
    lookalike,
    nearest_in_size,
    published,
)
from advisor.rules import Case, Settings
from advisor.schema import (
    DraftSpec,
    EngineName,
    Finding,
    Hardware,
    Mode,
    ModelShape,
    Policy,
    TargetSpec,
    Task,
    TokenizerSpec,
    Workload,
)
from advisor.situation import AssumedDepth, Published, Situation
from dflash.device import detect

# Depth of the published targets by size, for when only a parameter count is given. A test holds
# this against presets/pairs/, which has the sources.
PUBLISHED_DEPTHS = (
    (0.135e9, 30, "SmolLM2-135M-Instruct"),
    (0.5e9, 24, "Qwen2.5-0.5B-Instruct"),
    (1.2e9, 16, "LFM2.5-1.2B-Instruct"),
    (4e9, 36, "Qwen3-4B"),
    (8e9, 36, "Qwen3-8B"),
    (9e9, 32, "Qwen3.5-9B"),
    (27e9, 64, "Qwen3.5-27B"),
    (32.8e9, 64, "Qwen3-32B"),
    (80e9, 48, "Qwen3-Coder-Next"),
    (122e9, 48, "Qwen3.5-122B-A10B"),
    (397e9, 60, "Qwen3.5-397B-A17B"),
    (1000e9, 61, "Kimi-K2.5"),
)
Spec = TypeVar("Spec", DraftSpec, TargetSpec)
_MAX_SIZE = 1e15  # parameters; nothing in a config counts more


@dataclass(frozen=True, slots=True)
class Request:
    """What a person, a page or an agent asks the advisor. Everything may be left out."""

    params: int | None = None
    prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    target: str | None = None
    draft: str | None = None
    tokenizer: str | None = None
    hardware: str | None = None
    task: Task | None = None
    concurrency: int = 1
    temperature: float = 0.0
    mode: Mode | None = None
    policy: Policy = "evidence"
    engine: EngineName | None = None
    tau_per_position: str | None = None
    tau: float | None = None
    tau_block_size: int | None = None
    costs: str | None = None

    def as_given(self) -> dict[str, Any]:
        """The fields that were set, for the file that reopens."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Gathered:
    """The situation, and what reading the files already found wrong."""

    situation: Situation
    findings: tuple[Finding, ...] = field(default=())


def gather(request: Request) -> Gathered:
    """Read everything the request names and put it into one situation."""
    findings: list[Finding] = []
    draft = _draft(request, findings)
    target = _target(request, findings)
    tokenizer = _tokenizer(request, findings)
    known = find_known(draft, target)
    if draft is not None and request.mode != "train":
        findings += _judged(request, draft, target, tokenizer)
        findings += _resembling(draft) if known is None else ()
        draft = replace(draft, block_size=_possible(draft.block_size), shape=usable(draft.shape))
    if target is not None:
        target = replace(target, shape=usable(target.shape))
    if known is not None:
        target = completed(target or sources.target_of(known.pair).spec, known.pair)
        if draft is None and request.mode != "train":
            draft = sources.draft_of(known.pair).spec
    elif target is None:
        target = _verifier_of(draft)
    mode = request.mode or _implied_mode(request, draft)
    hardware = _hardware(request.hardware)
    measured = _measured(request, known, target, draft)
    situation = Situation(
        mode=mode,
        policy=request.policy,
        workload=Workload(
            task=request.task,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.max_new_tokens,
            concurrency=request.concurrency,
            temperature=request.temperature,
        ),
        num_params=request.params,
        target=_nameable(target, request.target),
        draft=_nameable(draft, request.draft) if mode == "serve" else None,
        tokenizer=tokenizer,
        hardware=hardware,
        engine=request.engine,
        published=_published(request, known),
        assumed_depth=_assumed_depth(request.params),
        tau=request.tau,
        tau_block_size=request.tau_block_size,
        inputs=request.as_given(),
        costs=measured.costs,
        tau_per_position=measured.tau_per_position,
        tau_by_block=measured.tau_by_block,
        num_tau_prompts=measured.num_tau_prompts,
        tuned=measured.tuned,
    )
    _check_tau(situation)
    if mode == "train" and request.draft is None:
        findings.append(_no_draft_yet(situation.params))
    return Gathered(situation, tuple(findings))


def _verifier_of(draft: DraftSpec | None) -> TargetSpec | None:
    """The published target that a draft unknown to the catalogue names as its own: its sizes are
    known, nothing else is taken from there."""
    pairs = match_target(draft.target_name) if draft is not None else ()
    return sources.target_of(pairs[0]).spec if pairs else None


def _check_tau(situation: Situation) -> None:
    block = tau_block_size(situation)
    if situation.tau is not None and situation.tau > block:
        raise EvidenceError(
            f"tau {situation.tau:g} cannot be reached with a block size of {block}.",
            "Give the block size it was measured at: --tau X@B.",
        )


def usable(shape: ModelShape) -> ModelShape:
    """The shape without sizes that no model has; what is wrong with them is a finding elsewhere."""
    kept: dict[str, Any] = {entry.name: getattr(shape, entry.name) for entry in fields(shape)}
    for name, value in kept.items():
        if isinstance(value, int | float) and not 0 < value <= _MAX_SIZE:
            kept[name] = None
    return ModelShape(**kept)


def _possible(block_size: int | None) -> int | None:
    if block_size is None or not 1 <= block_size <= MAX_BLOCK_SIZE:
        return None
    return block_size


def _judged(
    request: Request, draft: DraftSpec, target: TargetSpec | None, tokenizer: TokenizerSpec | None
) -> tuple[Finding, ...]:
    """What the config doctor says about the draft that was named."""
    given = frozenset({"temperature"} if request.temperature else ())
    case = Case(
        draft=draft,
        target=target,
        tokenizer=tokenizer,
        settings=Settings(temperature=request.temperature or None, given=given),
        engine=request.engine,
        prompt_tokens=request.prompt_tokens,
        max_new_tokens=request.max_new_tokens,
    )
    return check_case(case).findings


def _resembling(draft: DraftSpec) -> tuple[Finding, ...]:
    """A config without a name may still be a published draft's: say so, and assume nothing."""
    pair = lookalike(draft)
    if pair is None or draft.target_layer_ids is None:
        return ()
    return (
        Finding(
            id="draft.resembles-published",
            severity="note",
            field="architecture",
            message=f"This config has the block size, taps and mask of {pair.draft.hub_id}, but "
            "does not name itself, so no published figure is used.",
            hint=f"If it is that draft, add --target {pair.target.hub_id}, or pass --draft "
            f"{pair.id}.",
            evidence=pair.draft.source[0],
        ),
    )


def _no_draft_yet(num_params: int | None) -> Finding:
    """Say that the answer is for a draft nobody has yet, and what there is instead."""
    near = nearest_in_size(num_params) if num_params else ()
    published = "Published drafts stand in docs/catalogue.md."
    if near:
        published = (
            f"Published for targets of about this size: {', '.join(pair.id for pair in near)}; if "
            f"yours is one of them, ask again, say with --draft {near[0].id}. {published}"
        )
    return Finding(
        id="draft.none-yet",
        severity="note",
        field="draft",
        message="There is no draft yet: this answers for one still to be trained or found.",
        hint=f"{published} To train one: python -m dflash.train draft",
    )


def _draft(request: Request, findings: list[Finding]) -> DraftSpec | None:
    if request.draft is None:
        return None
    reading = sources.load_draft(request.draft)
    findings.extend(reading.findings)
    return replace(reading.spec, name=reading.spec.name or _folder(request.draft))


def _target(request: Request, findings: list[Finding]) -> TargetSpec | None:
    if request.target is None:
        return None
    reading = sources.load_target(request.target)
    findings.extend(reading.findings)
    return replace(reading.spec, name=reading.spec.name or _folder(request.target))


def _folder(text: str) -> str | None:
    """The folder that holds a config.json, else what was typed; a loose .json names nothing."""
    path = PurePath(text)
    if path.name == "config.json":
        return str(path.parent)
    return None if path.suffix == ".json" else text


def _nameable(spec: Spec | None, text: str | None) -> Spec | None:
    """The spec without a name that no engine could load: the folder of a config without weights."""
    if spec is None or spec.name is None or text is None or not sources.is_lone_config(text):
        return spec
    folder = Path(_folder(text) or text)
    is_folder = Path(spec.name).resolve() == folder.expanduser().resolve()
    return replace(spec, name=None) if is_folder else spec


def _tokenizer(request: Request, findings: list[Finding]) -> TokenizerSpec | None:
    if request.tokenizer is not None:
        reading = sources.load_tokenizer(request.tokenizer)
    elif request.target is not None:
        beside = sources.tokenizer_beside(request.target)
        if beside is None:
            return None
        reading = beside
    else:
        return None
    findings.extend(reading.findings)
    return reading.spec


def _implied_mode(request: Request, draft: DraftSpec | None) -> Mode:
    """A draft, or measurements of one, means serving; nothing to serve means training."""
    measured = request.costs or request.tau_per_position or request.tau is not None
    return "serve" if draft is not None or measured else "train"


def _hardware(text: str | None) -> Hardware | None:
    """The machine named, or for "auto" this one, matched to a preset by what it calls itself."""
    if text is None:
        return None
    if text != "auto":
        return load_hardware(text).hardware()
    machine = detect()
    name = machine.gpus[0].name if machine.gpus else machine.apple_chip or machine.cpu_model
    preset = hardware_named(name) if name else None
    if preset is None:
        # Without a preset nothing but memory is known, and nothing is made up.
        return Hardware("auto", machine.title, machine.memory_bytes, None, kind=machine.kind)
    found = preset.hardware()
    if machine.gpus:
        return replace(found, num_devices=len(machine.gpus), name=machine.title)
    return replace(found, memory_bytes=machine.memory_bytes or found.memory_bytes)


def _assumed_depth(params: int | None) -> AssumedDepth | None:
    if params is None:
        return None
    _, layers, name = min(
        PUBLISHED_DEPTHS, key=lambda row: max(row[0], params) / min(row[0], params)
    )
    return AssumedDepth(layers, name)


def _published(request: Request, known: Known | None) -> Published | None:
    if known is None:
        return None
    return published(known, task=request.task, temperature=request.temperature)


def _measured(
    request: Request, known: Known | None, target: TargetSpec | None, draft: DraftSpec | None
) -> Measured:
    """The files given, else this machine's own measurements of this pair, else nothing."""
    if request.costs or request.tau_per_position or request.tau is not None:
        return from_files(request.costs, request.tau_per_position)
    is_here = request.hardware in (None, "auto") and request.concurrency == 1
    if not is_here or draft is None:
        return Measured()
    return from_store(
        pair_id=known.pair.id if known else None,
        target_id=target.name if target else None,
        draft_id=draft.name,
        task=request.task,
        prompt_tokens=request.prompt_tokens,
    )
