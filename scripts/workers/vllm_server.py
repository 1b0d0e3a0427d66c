"""Runs inside the environment of vLLM. Imports none of ours.

Reads one JSON job per line, writes one JSON answer per line. The first job starts the engine, with
or without a draft.
"""

from __future__ import annotations

import json
import os
import sys
import time

from vllm import LLM, SamplingParams


def load(job: dict) -> LLM:
    """Start an engine for one request at a time."""
    options: dict = {}
    if job["draft"]:
        options["speculative_config"] = {
            "method": "dflash",
            "model": job["draft"],
            # vLLM counts the drafted tokens, we count the anchor too.
            "num_speculative_tokens": job["block_size"] - 1,
        }
        options["per_request_spec_decode_metrics"] = "detailed"
    return LLM(
        model=job["target"],
        dtype=job["dtype"],
        max_model_len=job["max_model_len"],
        enforce_eager=True,
        max_num_seqs=1,
        enable_prefix_caching=False,
        **options,
    )


def answer(engine: LLM, job: dict) -> dict:
    """Answer one prompt greedily; the time is that of the whole request."""
    sampling = SamplingParams(
        temperature=0.0, max_tokens=job["max_new_tokens"], stop_token_ids=job["stop_ids"]
    )
    started_s = time.perf_counter()
    (result,) = engine.generate(
        {"prompt_token_ids": job["ids"]}, sampling_params=sampling, use_tqdm=False
    )
    total_s = time.perf_counter() - started_s
    output = result.outputs[0]
    metrics = output.spec_decode_metrics
    return {
        "output_ids": list(output.token_ids),
        "text": output.text,
        "total_s": total_s,
        "spec": metrics.to_dict() if metrics is not None else None,
    }


def main() -> None:
    """Serve jobs until the input ends."""
    # Libraries print where they like; answers get the real standard output to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine: LLM | None = None
    for line in sys.stdin:
        job = json.loads(line)
        if engine is None:
            engine = load(job)
            reply: dict = {"started": True}
        else:
            reply = answer(engine, job)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
