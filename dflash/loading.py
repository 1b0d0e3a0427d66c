"""Loading a checkpoint with transformers so that whatever is wrong with it is one sentence.

Knows what damaged files and configs raise, and transformers' loading report. Knows no architecture.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from dflash.errors import CheckpointError

# Of the files and the config only: out of memory is a RuntimeError and no fault of a checkpoint.
_DAMAGE = (OSError, ValueError, KeyError, SafetensorError, StrictDataclassError)


@contextmanager
def loading(what: str, hint: str) -> Iterator[None]:
    """Turn what a missing, damaged or foreign checkpoint raises into a ``CheckpointError``."""
    try:
        yield
    except _DAMAGE as error:
        said = textwrap.shorten(str(error), 160, placeholder=" ...") or type(error).__name__
        raise CheckpointError(f"{what} cannot be loaded: {said.rstrip('.')}.", hint) from error


def check_whole(what: str, report: dict[str, Any], hint: str) -> None:
    """Refuse a checkpoint without a tensor for every weight. Raises ``CheckpointError``.

    ``report`` is transformers' loading info; a weight it did not find would be left random.
    """
    wrong = sorted(report["missing_keys"]) + sorted(str(k[0]) for k in report["mismatched_keys"])
    if wrong:
        raise CheckpointError(
            f"{what} does not fit its own config: {', '.join(wrong[:3])}"
            f"{' and more' if len(wrong) > 3 else ''} missing or of another shape.",
            hint,
        )


def load_target(path: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    """A whole causal language model from safetensors, on the CPU. Raises ``CheckpointError``."""
    what = f"the target {str(path)!r}"
    with loading(what, "Give a transformers folder with config.json and safetensors weights."):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # reported below, in our words
            output_loading_info=True,
        )
    model, report = loaded
    check_whole(what, report, "Fetch it again, or give the target's folder, not that of a draft.")
    return model


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a target's folder. Raises ``CheckpointError``."""
    hint = "Put the target's tokenizer files beside its weights."
    with loading(f"the tokenizer of {str(path)!r}", hint):
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
