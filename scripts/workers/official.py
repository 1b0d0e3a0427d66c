"""Runs inside the environment of the official package (PyPI ``dflash``). Imports none of ours.

Reads one JSON job per line, writes one JSON answer per line. A job that names a target and a draft
loads them; every other job asks the loaded pair.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

import dflash.model


def load(job: dict) -> tuple[dict, dict]:
    """Load both models in the dtype that the other side uses; the reply says what did not fit."""
    # The package's clock needs CUDA; on a CPU perf_counter means the same.
    if not torch.cuda.is_available():
        dflash.model._cuda_time = time.perf_counter
    torch.set_num_threads(job["num_threads"])
    dtype = getattr(torch, job["dtype"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    target = AutoModelForCausalLM.from_pretrained(
        job["target"], dtype=dtype, attn_implementation=job.get("attention", "sdpa")
    )
    target = target.to(device).eval()
    draft_class = getattr(dflash.model, job["draft_class"])
    draft, report = draft_class.from_pretrained(
        job["draft"], output_loading_info=True, dtype=dtype, attn_implementation="sdpa"
    )
    if job.get("save_to"):
        draft.save_pretrained(job["save_to"])
    reply = {name: sorted(map(str, report[name])) for name in ("missing_keys", "unexpected_keys")}
    reply |= {"torch": torch.__version__, "transformers": transformers.__version__}
    reply["dflash"] = version("dflash")
    return {"target": target, "draft": draft.to(device).eval()}, reply


def answer(models: dict, job: dict) -> dict:
    """Generate with the package's own loop and its own statistics; greedy unless told."""
    ids = torch.tensor([job["ids"]], device=models["target"].device)
    blocks: list[list[int]] = []

    def see(_module: Any, args: tuple, kwargs: dict) -> None:
        blocks.append((args[0] if args else kwargs["input_ids"])[0].tolist())

    hook = models["target"].register_forward_pre_hook(see, with_kwargs=True)
    try:
        found = dflash.model.dflash_generate(
            models["draft"],
            models["target"],
            ids,
            job["max_new_tokens"],
            job["stop_ids"] or None,
            block_size=job["block_size"],
            return_stats=True,
            **job.get("sampling", {}),
        )
    finally:
        hook.remove()
    decode_s = found.time_per_output_token * found.num_output_tokens
    return {
        "output_ids": found.output_ids[0, ids.shape[1] :].tolist(),
        "decode_s": decode_s,
        "ttft_s": found.time_to_first_token,
        "tokens_per_cycle": found.acceptance_lengths,
        "blocks": blocks[1:],  # the first forward reads the prompt
    }


def draws(models: dict, job: dict) -> list:
    """Many sampled answers of one prompt: tokens and what the first cycle kept."""
    torch.manual_seed(job["seed"])
    found = (answer(models, job) for _ in range(job["num_draws"]))
    return [[f["output_ids"], f["tokens_per_cycle"][:1]] for f in found]


def main() -> None:
    """Serve jobs until the input ends."""
    # Libraries print where they like; answers get the real standard output to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    models: dict = {}
    for line in sys.stdin:
        job = json.loads(line)
        reply: Any
        if "target" in job:
            models, reply = load(job)
        else:
            reply = draws(models, job) if "num_draws" in job else answer(models, job)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
