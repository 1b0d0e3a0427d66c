"""The command that measures a pair on this machine. Knows names; measures nothing."""

from __future__ import annotations

from typing import Literal

from advisor.exports.plan import DRAFT_PLACEHOLDER, TARGET_PLACEHOLDER, safe_name, shell
from advisor.situation import Situation


def measuring(situation: Situation, how: Literal["--tune", "--calibrate"]) -> str:
    """The command as one shell line, for the end of a sentence: nothing may stand behind it."""
    known = situation.published
    target = safe_name(situation.target_name or TARGET_PLACEHOLDER)
    draft = safe_name(situation.draft_name or DRAFT_PLACEHOLDER)
    models = [known.pair_id] if known else [target, "--draft-model", draft]
    task = situation.workload.task or ("demo" if models == ["demo"] else "chat")
    return shell("python", "-m", "dflash.benchmark", how, "--dataset", task, "--model", *models)
