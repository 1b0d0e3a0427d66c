"""docker-compose for the servers: the same words as their commands, as a list, so unquoted.

Compose itself expands ``$`` in values, so a name's own dollar sign is doubled.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import yaml

from advisor.exports import llamacpp, sglang, vllm
from advisor.exports.plan import Export, Plan

Server: TypeAlias = Literal["vllm", "sglang", "llamacpp"]
# The entry point of each image already is the server; these words of the command are left out.
_IMAGES: dict[Server, tuple[str, list[str], int]] = {
    "vllm": ("vllm/vllm-openai:latest", ["vllm", "serve"], 8000),
    "sglang": ("lmsysorg/sglang:latest", [], 30000),
    "llamacpp": ("ghcr.io/ggml-org/llama.cpp:server-cuda", ["llama-server"], 8080),
}
_ENGINES = {"vllm": vllm, "sglang": sglang, "llamacpp": llamacpp}


def export(plan: Plan, server: Server = "vllm") -> Export:
    """Render a compose file with one service on one GPU, reachable from this machine only."""
    image, prefix, port = _IMAGES[server]
    engine = _ENGINES[server]
    command = engine.words(plan)[len(prefix) :]
    if server != "vllm":
        command += ["--host", "0.0.0.0", "--port", str(port)]
    service: dict[str, Any] = {
        "image": image,
        "command": [word.replace("$", "$$") for word in command],
        "ports": [f"127.0.0.1:{port}:{port}"],
        # the second path is inside the server's image, whose user is root
        "volumes": ["~/.cache/huggingface:/root/.cache/huggingface"],
        "ipc": "host",
        "deploy": {
            "resources": {
                "reservations": {
                    "devices": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
                }
            }
        },
    }
    text = yaml.safe_dump({"services": {server: service}}, sort_keys=False, width=1000)
    return Export(text, "docker-compose.yaml", engine.export(plan).notes)
