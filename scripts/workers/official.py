"""Runs inside the environment of the official package (PyPI ``dflash``). Imports none of ours.

Reads one JSON job per line, writes one JSON answer per line. The first job loads the models.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from transformers import AutoModelForCausalLM

import dflash.model


def load(job: dict) -> dict:
    """Load both models in the dtype that the other side uses."""
    # The package's clock needs CUDA; on a CPU perf_counter means the same.
    if not torch.cuda.is_available():
        dflash.model._cuda_time = time.perf_counter
    torch.set_num_threads(job["num_threads"])
    dtype = getattr(torch, job["dtype"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"attn_implementation": "sdpa", "dtype": dtype}
    target = AutoModelForCausalLM.from_pretrained(job["target"], **options).to(device).eval()
    draft_class = getattr(dflash.model, job["draft_class"])
    draft = draft_class.from_pretrained(job["draft"], **options).to(device).eval()
    return {"target": target, "draft": draft}


def answer(models: dict, job: dict) -> dict:
    """Generate greedily with the package's own loop and its own statistics."""
    ids = torch.tensor([job["ids"]], device=models["target"].device)
    found = dflash.model.dflash_generate(
        models["draft"],
        models["target"],
        ids,
        job["max_new_tokens"],
        job["stop_ids"] or None,
        block_size=job["block_size"],
        return_stats=True,
    )
    decode_s = found.time_per_output_token * found.num_output_tokens
    return {
        "output_ids": found.output_ids[0, ids.shape[1] :].tolist(),
        "decode_s": decode_s,
        "ttft_s": found.time_to_first_token,
        "tokens_per_cycle": found.acceptance_lengths,
    }


def main() -> None:
    """Serve jobs until the input ends."""
    # Libraries print where they like; answers get the real standard output to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    models: dict = {}
    for line in sys.stdin:
        job = json.loads(line)
        if not models:
            models = load(job)
            reply: dict = {"torch": torch.__version__}
        else:
            reply = answer(models, job)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
