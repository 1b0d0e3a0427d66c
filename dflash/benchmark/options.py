"""The flags of ``python -m dflash.benchmark`` and what they mean. Runs nothing."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dflash.benchmark.prompts import DEFAULT_HUB_LIMIT, HUB_DATASETS
from dflash.errors import PromptError
from dflash.presets import preset_ids
from dflash.schema import SamplingParams

# What the guide calls the backend, and the engine that it means here.
BACKENDS = {"transformers": "torch", "torch": "torch", "mlx": "mlx"}
SERVERS = ("vllm", "sglang", "llamacpp")


def parser() -> argparse.ArgumentParser:
    """Build the parser. Destinations are snake-case flag names; times are seconds."""
    root = argparse.ArgumentParser(
        prog="python -m dflash.benchmark",
        description="Measure DFlash against autoregressive decoding on the same prompts. Medians "
        "of per-prompt paired ratios, warm-up, alternating order, outputs checked for equality.",
    )
    _models(root)
    _servers(root)
    _prompts(root)
    _measuring(root)
    _outputs(root)
    return root


def sampling_of(args: argparse.Namespace) -> SamplingParams:
    """The sampling that the flags ask for. Raises ``PromptError`` for a value out of range."""
    try:
        sampling = SamplingParams(
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
            seed=args.seed,
            max_new_tokens=args.max_new_tokens,
            enable_thinking=args.enable_thinking,
        )
        replace(sampling, seed=args.seed + args.repeats - 1)  # the last repeat's
    except ValueError as error:
        raise PromptError(f"{error}.") from error
    return sampling


def _models(root: argparse.ArgumentParser) -> None:
    group = root.add_argument_group("models")
    group.add_argument("--backend", choices=(*BACKENDS, *SERVERS), default="transformers")
    group.add_argument("--model", help="a pair id, a hub id, a folder, or a served model's name")
    group.add_argument("--draft-model", help="a hub id or a folder; not needed for a pair id")
    group.add_argument("--device", help="cpu, cuda or mps; default: the fastest here")
    group.add_argument("--threads", type=positive, help="CPU threads; default: torch's own choice")


def _servers(root: argparse.ArgumentParser) -> None:
    group = root.add_argument_group(f"servers (--backend {', '.join(SERVERS)})")
    group.add_argument("--base-url", metavar="URL", help="the server that runs DFlash")
    group.add_argument("--baseline-url", metavar="URL", help="the same target without a draft")
    group.add_argument(
        "--api-key-env", metavar="NAME", help="the environment variable that holds the key"
    )
    group.add_argument(
        "--concurrency",
        type=positive,
        nargs="+",
        default=[1, 4, 8, 16],
        metavar="N",
        help="clients at once, one or several (default: 1 4 8 16)",
    )


def _prompts(root: argparse.ArgumentParser) -> None:
    group = root.add_argument_group("prompts")
    names = ", ".join((*HUB_DATASETS, *preset_ids("prompts")))
    group.add_argument(
        "--dataset",
        metavar="NAME|FILE",
        help=f"{names}, or a .jsonl file of rows {{category, turns}}",
    )
    group.add_argument(
        "--limit",
        "--num-prompts",
        type=positive,
        help=f"ask this many, spread over the set (default: all, {DEFAULT_HUB_LIMIT} of a hub set)",
    )
    group.add_argument("--max-new-tokens", type=positive, default=256)
    group.add_argument("--temperature", type=float, default=0.0)
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--top-k", type=int, default=0)
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--enable-thinking", action="store_true")


def _measuring(root: argparse.ArgumentParser) -> None:
    group = root.add_argument_group("measuring")
    group.add_argument(
        "--block-size",
        type=positive,
        nargs="+",
        metavar="B",
        help="one or several; default: the block the draft was trained with",
    )
    group.add_argument(
        "--sliding-window-size",
        type=positive,
        nargs="+",
        metavar="W",
        help="bound the draft's context, where it was trained without a window; --tune takes "
        "several (default there: those shorter than the prompts)",
    )
    group.add_argument("--repeats", type=positive, default=2)
    group.add_argument(
        "--loop-baseline-only",
        action="store_true",
        help="leave out transformers' own generate as the second baseline",
    )
    modes = group.add_mutually_exclusive_group()
    modes.add_argument(
        "--calibrate",
        action="store_true",
        help="time one AR step, a draft pass and a verification by block size and context",
    )
    modes.add_argument(
        "--tune",
        action="store_true",
        help="find the fastest block size on one half of the prompts, judge it on the other",
    )
    group.add_argument(
        "--time-budget",
        type=positive_float,
        default=60.0,
        metavar="SECONDS",
        help="for --calibrate and --tune (default: 60)",
    )


def _outputs(root: argparse.ArgumentParser) -> None:
    group = root.add_argument_group("outputs")
    group.add_argument("--output", type=Path, metavar="FILE.json")
    group.add_argument("--csv", type=Path, metavar="FILE.csv", help="one row per measured run")


def positive(text: str) -> int:
    """An argument type: a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def positive_float(text: str) -> float:
    """An argument type: a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value
