"""Rules about the chat template: thinking mode and doubled begin tokens."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule

PLAIN = "https://github.com/z-lab/dflash/issues/133"
THINKING = "https://github.com/z-lab/dflash/issues/60"


def _trained_thinking(case: Case) -> bool | None:
    """Whether the draft was trained on thinking answers, when every published lookalike agrees."""
    answers = {facts.thinking for facts in case.lookalikes}
    return answers.pop() if len(answers) == 1 else None


@rule("thinking.mismatch", "warning", "chat_template", evidence=PLAIN)
def mismatch(case: Case) -> Fault | None:
    """The thinking mode to run with is not the one the draft was trained in."""
    wanted, trained = case.settings.enable_thinking, _trained_thinking(case)
    if wanted is None or trained is None or wanted == trained:
        return None
    if trained:
        return Fault(
            "This draft was trained on thinking answers; without thinking 9.5 tokens per cycle "
            "fell to 2.7 to 3.9.",
            "Set enable_thinking to true, or measure both.",
        )
    return Fault(
        "This draft was trained without thinking; with it, acceptance fell from 60 % to 25 % "
        "in a public report.",
        'Send chat_template_kwargs {"enable_thinking": false}.',
    )


@rule("thinking.server-default", "note", "chat_template", evidence=PLAIN)
def server_default(case: Case) -> Fault | None:
    """A server thinks unless told otherwise, and this draft was trained without thinking."""
    if case.settings.enable_thinking is not None or _trained_thinking(case) is not False:
        return None
    if case.engine not in ("vllm", "sglang", "llamacpp"):
        return None
    if case.target is not None and case.target.model_type not in (None, "qwen3", "qwen3_moe"):
        return None
    return Fault(
        "This draft was trained without thinking, and servers render Qwen3 prompts with it unless "
        "told otherwise.",
        'Send chat_template_kwargs {"enable_thinking": false} with every request.',
    )


@rule("template.double-bos", "note", "chat_template",
      evidence="https://github.com/OpenRLHF/OpenRLHF/issues/393")  # fmt: skip
def double_bos(case: Case) -> Fault | None:
    """Template and tokenizer both put a begin token in front."""
    spec = case.tokenizer
    if spec is None or not spec.chat_template or spec.adds_bos is not True:
        return None
    if "bos_token" not in spec.chat_template:
        return None
    return Fault(
        "The chat template writes the begin token and the tokenizer adds one more.",
        "Render with tokenize=True, or encode the text with add_special_tokens=False.",
    )
