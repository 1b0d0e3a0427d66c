"""Errors a user is meant to read: one clear sentence with the value in it, and the fix.

Knows how to word a failure. Knows nothing of where it is shown.
"""

from __future__ import annotations


class DFlashError(Exception):
    """Base of every error that is shown to a user as it stands."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class PairError(DFlashError):
    """The target and the draft do not belong together, or one of them cannot be used."""


class CheckpointError(DFlashError):
    """A model file or folder is missing, unreadable, or not what it claims to be."""


class PresetError(DFlashError):
    """A file under presets/ breaks its schema."""


class EngineError(DFlashError):
    """An engine could not start, or stopped in the middle of a run."""


class TraceError(DFlashError):
    """A recorded run cannot be read."""


class PromptError(DFlashError):
    """A data set or a file of prompts cannot be used."""


class TapsError(PairError, ValueError):
    """Taps that the target cannot give."""


class BlockSizeError(DFlashError, ValueError):
    """A block size that the draft was not trained for."""
