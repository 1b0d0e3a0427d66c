"""Race a vLLM server with DFlash against one without, and hold both to our own torch engine.

    python scripts/race_vllm.py

From nothing: makes vLLM an environment, starts both servers on loopback with the pair, sends every
prompt to both through the page's own race, and checks that the text is ours, that the acceptance
each request reports is ours, and that the server's counters add up to it. Both servers are stopped
whatever happens. Exit code 0 when all of it agrees, 1 when not, 2 when it could not be tried.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from dflash.engines.vllm import VllmEngine
from scripts.served_race import command_line, our_side, race_servers
from scripts.servers import serving
from scripts.vllm_env import MAX_MODEL_LEN, variables, vllm_python
from scripts.vllm_servers import Pair, command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the race and print it; the last line of standard output is JSON."""
    return command_line(__doc__ or "", "vllm", run, argv)


def run(args: Namespace) -> dict[str, Any]:
    """Everything, from the environment to the table."""
    python = vllm_python(args.env_dir)
    ours = our_side(args)
    pair = Pair(
        target_path=ours.target_path,
        draft_path=ours.draft_path,
        block_size=ours.block_size,
        dtype=ours.engine.info.dtype,
        max_model_len=min(MAX_MODEL_LEN, ours.engine.context_length),
    )
    used = variables(torch.get_num_threads())
    start = partial(command, python, pair)
    with serving("vLLM", start, logs=args.env_dir, variables=used) as (plain, drafting):
        return race_servers(ours, VllmEngine(base_url=drafting.url, baseline_url=plain.url), args)


if __name__ == "__main__":
    sys.exit(main())
