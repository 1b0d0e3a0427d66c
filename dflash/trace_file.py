"""Traces as JSON. Knows the schema's values and how to refuse a file that does not fit them.

Reading is strict: a file from a stranger either becomes a consistent ``Trace`` or one
``TraceError`` that names the place. Knows no page, no engine and no clock.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from dflash.errors import TraceError
from dflash.schema import Chunk, Cycle, Event, Finished, Prefilled, Trace
from dflash.whole_file import write_whole

FORMAT = "dflash-trace"
VERSION = 1
MAX_FILE_BYTES = 50_000_000
MAX_EVENTS = 100_000
_MAX_WHOLE = 2**63  # of ids, counts, bytes and seeds
_MAX_BLOCK_SIZE = 4096  # histograms have a place for every draft

_EVENT_TYPES: dict[str, type] = {
    "prefilled": Prefilled,
    "cycle": Cycle,
    "chunk": Chunk,
    "finished": Finished,
}
_EVENT_NAMES = {kind: name for name, kind in _EVENT_TYPES.items()}
_Value = TypeVar("_Value")


def trace_to_dict(trace: Trace) -> dict[str, Any]:
    """Give the JSON form of a trace; ``trace_from_dict`` gives back an equal one."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "request": dataclasses.asdict(trace.request),
        "engine": dataclasses.asdict(trace.engine),
        "events": [
            {"type": _EVENT_NAMES[type(event)], **dataclasses.asdict(event)}
            for event in trace.events
        ],
    }


def trace_from_dict(data: Any) -> Trace:
    """Read the JSON form strictly. Raises ``TraceError`` that names the first place at fault."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TraceError("this is not a recorded run.", f"Its 'format' would say {FORMAT!r}.")
    if data.get("version") != VERSION:
        raise TraceError(
            f"this recorded run has version {_short(data.get('version'))}; "
            f"this program reads {VERSION}.",
            "Record it again, or open it with the program that wrote it.",
        )
    events = data.get("events")
    if isinstance(events, list):
        if len(events) > MAX_EVENTS:
            raise TraceError(f"{len(events)} events are more than the {MAX_EVENTS} that are read.")
        events = tuple(_event(item, f"events[{i}]") for i, item in enumerate(events))
    body = {k: v for k, v in data.items() if k not in ("format", "version", "events")}
    trace = _dataclass({**body, "events": ()}, Trace, "the run")
    if not isinstance(events, tuple):
        raise TraceError("events must be a list.")
    trace = dataclasses.replace(trace, events=events)
    _check_consistent(trace)
    return trace


def parse_json(text: str) -> Any:
    """Parse JSON from a stranger: no NaN, no bottomless nesting, no text that nothing can show.

    Raises ``TraceError``.
    """
    if len(text) > MAX_FILE_BYTES:
        raise TraceError(
            f"{len(text)} characters are more than the {MAX_FILE_BYTES} that are read."
        )
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text.lower():  # an escape of half a character, which no page can be sent
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise TraceError(f"this is not readable as JSON ({type(error).__name__}).") from error
    return data


def read_trace(path: Path) -> Trace:
    """Read one recorded run. Raises ``TraceError`` with the path in it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TraceError(f"it is larger than {MAX_FILE_BYTES} bytes.")
        return trace_from_dict(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({type(error).__name__}).") from error
    except TraceError as error:
        raise TraceError(f"{path}: {error.message}", error.hint) from error


def write_trace(path: Path, trace: Trace) -> None:
    """Write one run, whole or not at all. Raises ``StorageError``."""
    text = json.dumps(trace_to_dict(trace), ensure_ascii=False, allow_nan=False)
    write_whole(path, text + "\n")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _event(item: Any, place: str) -> Event:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind not in _EVENT_TYPES:
        raise TraceError(
            f"{place}: the type is {_short(kind)}, not one of {', '.join(_EVENT_TYPES)}."
        )
    body = {key: value for key, value in item.items() if key != "type"}
    return _dataclass(body, _EVENT_TYPES[kind], place)


def _dataclass(data: Any, kind: type[_Value], place: str) -> _Value:
    if not isinstance(data, dict):
        raise TraceError(f"{place} is {_short(data)}, not an object.")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.5)
            guess = f"; did you mean {near[0]!r}?" if near else "."
            raise TraceError(f"{place}: unknown key {_short(key)}{guess}")
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING
        if name not in data and not optional and field.default_factory is dataclasses.MISSING:
            raise TraceError(f"{place}: {name!r} is missing.")
    values = {key: _value(item, hints[key], f"{place}.{key}") for key, item in data.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise TraceError(f"{place}: {error}.") from error


def _value(data: Any, kind: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _value(data, next(a for a in arguments if a is not type(None)), place)
    if origin is Literal:
        if data in arguments and isinstance(data, str):
            return data
        raise TraceError(f"{place} is {_short(data)}, not one of {', '.join(arguments)}.")
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise TraceError(f"{place} is {_short(data)}, not a list.")
        return tuple(_value(item, arguments[0], f"{place}[{i}]") for i, item in enumerate(data))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(data, kind, place)
    return _scalar(data, kind, place)


def _scalar(data: Any, kind: type, place: str) -> Any:
    is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
    # Compared before anything is computed: JSON has integers that no float can hold.
    if is_number and not abs(data) <= (1e15 if kind is float else _MAX_WHOLE):
        raise TraceError(f"{place} is {_short(data)}, which is no usable number.")
    if kind is float and is_number:
        return float(data)
    # bool is an int to Python, but true is no count.
    if isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise TraceError(f"{place} is {_short(data)}, not of type {kind.__name__}.")


def _check_consistent(trace: Trace) -> None:
    """Hold a run to what every engine promises, so that no chart meets an impossible one."""
    block_size = trace.request.block_size
    if block_size > _MAX_BLOCK_SIZE:
        raise TraceError(f"block size {block_size} is more than the {_MAX_BLOCK_SIZE} of any run.")
    last_s = 0.0
    for i, event in enumerate(trace.events):
        if event.t_s < last_s:
            raise TraceError(f"events[{i}].t_s is {event.t_s:g}, before the event in front of it.")
        last_s = event.t_s
        if isinstance(event, Prefilled) and i > 0:
            raise TraceError(f"events[{i}] is 'prefilled', which can only come first.")
        if isinstance(event, Finished) and i < len(trace.events) - 1:
            raise TraceError(f"events[{i}] is 'finished', but more events follow it.")
        if isinstance(event, Cycle):
            _check_cycle(event, f"events[{i}]", block_size)


def _check_cycle(cycle: Cycle, place: str, block_size: int) -> None:
    if len(cycle.draft_ids) >= block_size:
        raise TraceError(f"{place} drafts {len(cycle.draft_ids)}, too many for block {block_size}.")
    if not 0 <= cycle.num_accepted <= len(cycle.draft_ids):
        raise TraceError(
            f"{place}.num_accepted is {cycle.num_accepted}, of {len(cycle.draft_ids)} drafts."
        )
    if len(cycle.emitted_ids) > cycle.num_accepted + 1:
        raise TraceError(f"{place} emits {len(cycle.emitted_ids)} tokens, more than it accepted.")
    if len(cycle.pieces) > len(cycle.emitted_ids):
        raise TraceError(f"{place} has more pieces than emitted_ids.")
    if min(cycle.draft_s, cycle.verify_s) < 0:
        raise TraceError(f"{place} has a negative duration.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
