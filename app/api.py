"""The advisor over HTTP and MCP: typed endpoints with descriptions an agent can use.

Thin layers over the same functions as the command line and the page. Models, tokenizers and
configs are read as data; nothing is generated here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import gradio as gr
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from advisor import exports
from advisor.check import check as check_draft
from advisor.cli_recommend import as_json
from advisor.exports import yaml_file
from advisor.schema import ENGINES
from app import wiring
from app.advice_form import (
    AdviceForm,
    ask,
    is_pasted,
    named_files,
    one_of,
    settings_from,
    whole,
)
from app.hosted import HOME, Limits
from app.own_folders import without_own_folders
from dflash.errors import DFlashError

_MODEL_FIELDS = ("draft", "target", "tokenizer")


class Blocks(gr.Blocks):
    """Gradio's Blocks, in which an endpoint that is sent too few or too many values says so.

    Gradio counts them before the endpoint is called, keeps the reason of a refusal in its own log,
    and drops what is too many.
    """

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False
    ) -> Any:
        """Gradio's own, after the count."""
        if block_fn.api_name in {endpoint.__name__ for endpoint in _ENDPOINTS}:
            inputs = _one_for_each(block_fn.api_name, inspect.signature(block_fn.fn), inputs)
        return await super().preprocess_data(block_fn, inputs, state, explicit_call)


async def refuse_names(request: Request, error: Exception) -> JSONResponse:
    """Answer a call by name that leaves out a required field or names one that does not exist.

    For ``launch(app_kwargs={"exception_handlers": {TypeError: ...}})``: Gradio lets these through
    as an internal error.
    """
    if "/call/v2/" not in request.url.path:
        raise error
    return JSONResponse({"error": f"{error}"}, status_code=422)


def add_endpoints(limits: Limits = HOME) -> None:
    """Register ``/check``, ``/recommend`` and ``/export``; call inside ``Blocks``."""
    for endpoint in _ENDPOINTS:
        gr.api(_within(limits, endpoint), api_name=endpoint.__name__, queue=False)


def _one_for_each(name: str, signature: inspect.Signature, values: list[Any]) -> list[Any]:
    """A value for every field: those left out at the end are null. Raises ``gr.Error``."""
    names, least = list(signature.parameters), len(_required(signature))
    if least <= len(values) <= len(names):
        return values + [None] * (len(names) - len(values))
    takes = f"{len(names)}" if least == len(names) else f"{least} to {len(names)}"
    order = ", ".join(names)
    raise wiring.shown(
        DFlashError(f"/{name} takes {takes} values, in this order: {order}; got {len(values)}.")
    )


def _required(signature: inspect.Signature) -> set[str]:
    return {n for n, p in signature.parameters.items() if p.default is p.empty}


def _within(limits: Limits, endpoint: Callable[..., dict]) -> Callable[..., dict]:
    """The endpoint, with types and the models it is given checked first; words stay."""
    signature = inspect.signature(endpoint)
    required = _required(signature)
    types = {name: TypeAdapter(hint) for name, hint in get_type_hints(endpoint).items()}

    @functools.wraps(endpoint)
    def checked(*args: Any, **named: Any) -> dict:
        # A client that has nothing to say about a field may send null for it.
        bound = signature.bind(*args, **named).arguments
        given = {n: v for n, v in bound.items() if v is not None or n in required}
        try:
            typed = {name: _typed(name, types[name], value) for name, value in given.items()}
            limits.check_model_names(**{n: typed[n] for n in _MODEL_FIELDS if n in typed})
        except DFlashError as error:
            raise wiring.shown(error) from error
        return endpoint(**typed)

    return checked


def _typed(name: str, adapter: TypeAdapter[Any], value: Any) -> Any:
    """The value as its field's type. Raises ``DFlashError``: clients send anything."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        sent = repr(value)[:80]
        raise DFlashError(f"{name}: {reason[0].lower()}{reason[1:]}, got {sent}.") from error


def check(
    draft: str,
    target: str = "",
    tokenizer: str = "",
    settings: dict | None = None,
    engine: str = "",
    prompt_tokens: int = 0,
    max_new_tokens: int = 0,
) -> dict:
    """Check a DFlash draft's config, alone or against its target, and list what is wrong.

    Args:
        draft: A catalogue id (qwen3-8b), a hub id, or the text of its config.json.
        target: The same for the model that is sped up; may be empty.
        tokenizer: The text of tokenizer_config.json or generation_config.json, or a path; may
            be empty.
        settings: What you mean to run with: block_size, sliding_window_size, mask_token_id,
            target_layer_ids, enable_thinking, temperature.
        engine: vllm, sglang, llamacpp, mlx, transformers or tensorrt-llm, for that engine's own
            rules; may be empty.
        prompt_tokens: Prompt length in tokens; 0 if unknown.
        max_new_tokens: Tokens to generate; 0 if unknown.

    Returns:
        {"draft": normalised config, "target": normalised config or null, "findings": [{"id",
            "severity", "field", "message", "hint", "evidence"}]}
    """
    try:
        with _files(draft=draft, target=target, tokenizer=tokenizer) as names:
            report = check_draft(
                names["draft"] or "",
                target=names["target"],
                tokenizer=names["tokenizer"],
                settings=settings_from(settings),
                engine=one_of("engine", engine, ENGINES),
                prompt_tokens=whole("prompt_tokens", prompt_tokens, 0) or None,
                max_new_tokens=whole("max_new_tokens", max_new_tokens, 0) or None,
            )
    except DFlashError as error:
        raise wiring.shown(error) from error
    return without_own_folders(report.as_json())


def recommend(
    params: str = "",
    prompt_tokens: int = 0,
    target: str = "",
    draft: str = "",
    hardware: str = "",
    task: str = "",
    concurrency: int = 1,
    temperature: float = 0.0,
    tau: str = "",
    mode: str = "",
    policy: str = "evidence",
    engine: str = "",
) -> dict:
    """Recommend DFlash settings: block_size, target_layer_ids, sliding_window_size, mask_token_id.

    Says whether DFlash is worth turning on, how fast it is expected to be, and what every answer
    rests on. Everything may be left empty; unknown is null, never a made-up number.

    Args:
        params: Parameter count of the target, such as 4B, 135M or 4e9.
        prompt_tokens: Prompt length in tokens; 0 if unknown.
        target: Catalogue id, hub id or config.json text of the target.
        draft: Catalogue id, hub id or config.json text of the draft; empty to train one.
        hardware: A machine id such as rtx-4090, h100-sxm, apple-m4-max; "auto" for the one this
            runs on.
        task: chat, code, math, json, translate or edit.
        concurrency: Requests served at once.
        temperature: Sampling temperature.
        tau: Measured tokens per cycle, bonus included, as X or X@block_size.
        mode: serve (a trained draft exists) or train.
        policy: evidence (the best evidence wins) or guide (the tuning guide's rules as written).
        engine: The engine it will run on; may be empty.

    Returns:
        {"mode", "verdict", "knobs", "estimate", "alternatives", "findings", "exports", ...}
    """
    try:
        with _files(draft=draft, target=target) as names:
            answer = ask(
                AdviceForm(
                    params=params,
                    prompt_tokens=prompt_tokens or None,
                    target=names["target"],
                    draft=names["draft"],
                    hardware=hardware,
                    task=task,
                    concurrency=concurrency,
                    temperature=temperature,
                    tau=tau,
                    mode=mode,
                    policy=policy,
                    engine=engine,
                )
            )
            return as_json(answer) | {"yaml": yaml_file.dump(answer)}
    except DFlashError as error:
        raise wiring.shown(error) from error


def export(recommendation_yaml: str, to: str) -> dict:
    """Write a recommendation as the command or file of one engine.

    Args:
        recommendation_yaml: The "yaml" field of /recommend.
        to: yaml, vllm, sglang, llamacpp, mlx, transformers, tensorrt-llm, mlx-command,
            transformers-command, compose-vllm, compose-sglang, compose-llamacpp or draft-
            config.

    Returns:
        {"filename", "text", "notes": what the engine cannot honestly be told}
    """
    try:
        written = exports.render(
            yaml_file.parse(recommendation_yaml, name="the recommendation"), to
        )
    except DFlashError as error:
        raise wiring.shown(error) from error
    return {"filename": written.filename, "text": written.text, "notes": list(written.notes)}


@contextlib.contextmanager
def _files(**named: str) -> Iterator[dict[str, str | None]]:
    """Names as they are; config text becomes a file for the length of the question."""
    names: dict[str, str | None] = {k: v.strip() or None for k, v in named.items()}
    with named_files(**{k: v for k, v in named.items() if is_pasted(v)}) as pasted:
        yield names | pasted


_ENDPOINTS = (check, recommend, export)
