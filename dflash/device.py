"""What machine is this? Asks the operating system, never torch. Knows no model.

Everything here is what the machine says about itself. Bandwidth and FLOP/s are not: they come from
presets/hardware/ or from a calibration.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ISA_FLAGS = (
    "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "sve",
)  # fmt: skip
_COMMAND_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as its own tool names it."""

    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about this machine; ``None`` where it does not say."""

    system: str  # Linux, Darwin, Windows
    architecture: str
    cpu_model: str | None
    num_cores: int  # those this process may use
    memory_bytes: int | None
    isa_flags: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    apple_chip: str | None

    @property
    def kind(self) -> str:
        """gpu, apple or cpu: what a model would run on here."""
        if self.gpus:
            return "gpu"
        return "apple" if self.apple_chip else "cpu"

    @property
    def title(self) -> str:
        """One line for people."""
        if self.gpus:
            count = f"{len(self.gpus)}x " if len(self.gpus) > 1 else ""
            return count + self.gpus[0].name
        cores = f"{self.num_cores} core" + ("" if self.num_cores == 1 else "s")
        return f"{self.apple_chip or self.cpu_model or self.architecture}, {cores}"


@cache
def detect() -> Machine:
    """Describe this machine. Takes well under a second; the answer is kept."""
    system = platform.system()
    cpu = _cpuinfo() if system == "Linux" else {}
    chip = _apple_chip() if system == "Darwin" else None
    return Machine(
        system=system,
        architecture=platform.machine(),
        cpu_model=chip or cpu.get("model name") or cpu.get("Model") or platform.processor() or None,
        num_cores=_num_cores(),
        memory_bytes=_memory_bytes(system),
        isa_flags=_isa_flags(cpu),
        gpus=_nvidia_gpus(),
        apple_chip=chip if chip and chip.startswith("Apple") else None,
    )


def machine_id(machine: Machine | None = None) -> str:
    """Return a short id that is equal only for machines of the same make and size."""
    facts = machine or detect()
    gib = round((facts.memory_bytes or 0) / 2**30)
    parts = (
        facts.system, facts.architecture, facts.cpu_model, facts.num_cores, gib,
        tuple(gpu.name for gpu in facts.gpus),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpuinfo() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _isa_flags(cpu: dict[str, str]) -> tuple[str, ...]:
    present = set((cpu.get("flags") or cpu.get("Features") or "").split())
    return tuple(flag for flag in _ISA_FLAGS if flag in present)


def _memory_bytes(system: str) -> int | None:
    if system == "Darwin":
        text = _output("sysctl", "-n", "hw.memsize")
        return int(text) if text and text.isdigit() else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not asked that way on Windows
        return None


def _apple_chip() -> str | None:
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or None


def _nvidia_gpus() -> tuple[Gpu, ...]:
    text = _output("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    gpus = []
    for line in (text or "").splitlines():
        name, _, mebibytes = line.rpartition(",")
        memory = mebibytes.strip()
        if name:
            gpus.append(Gpu(name.strip(), int(memory) * 2**20 if memory.isdigit() else None))
    return tuple(gpus)


def _output(*command: str) -> str | None:
    """What a small system tool prints, or ``None`` where it is missing, slow or fails."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, *command[1:]),
            capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
