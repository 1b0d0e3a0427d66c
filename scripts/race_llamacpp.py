"""Race a llama-server with DFlash against one without, and hold both to our own torch engine.

    python scripts/race_llamacpp.py

From nothing: fetches llama.cpp's source, builds its server, converts the pair, starts both servers
on loopback, sends every prompt to both through the page's own race, and checks that the text is
ours, that the acceptance of each request is ours, and that the server's counters add up to it.
Both servers are stopped whatever happens. Exit code 0 when all of it agrees, 1 when not, 2 when it
could not be tried. Needs a C++ compiler.
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

from dflash.engines.llamacpp import LlamacppEngine
from scripts.llamacpp_env import command, converted, llama_cpp
from scripts.served_race import command_line, our_side, race_servers
from scripts.servers import serving

NUM_SLOTS = 16  # as many clients at once as the load benchmark has
MAX_SLOT_TOKENS = 2048


def main(argv: Sequence[str] | None = None) -> int:
    """Run the race and print it; the last line of standard output is JSON."""
    return command_line(__doc__ or "", "llamacpp", run, argv)


def run(args: Namespace) -> dict[str, Any]:
    """Everything, from the source to the table."""
    built = llama_cpp(args.env_dir)
    ours = our_side(args)
    target, draft = Path(ours.target_path), Path(ours.draft_path)
    start = partial(
        command,
        built,
        converted(built, target, draft, args.env_dir / "gguf"),
        block_size=ours.block_size,
        num_threads=torch.get_num_threads(),
        num_slots=NUM_SLOTS,
        slot_tokens=min(MAX_SLOT_TOKENS, ours.engine.context_length),
    )
    with serving("llama.cpp", start, logs=args.env_dir, variables={}) as (plain, drafting):
        engine = LlamacppEngine(base_url=drafting.url, baseline_url=plain.url)
        return race_servers(ours, engine, args)


if __name__ == "__main__":
    sys.exit(main())
