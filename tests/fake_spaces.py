"""The ``spaces`` package as far as its rules matter: a forked process per call, everything pickled,
a stop only at a yield, and refusals as ``gr.Error``. Written from its documentation."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

_FORK = multiprocessing.get_context("fork")


class FakeSpaces:
    """Counts calls and remembers the durations that were asked for."""

    def __init__(self) -> None:
        self.durations: list[int] = []
        self.refuse_with = ""
        self.stopped_in_child = _FORK.Event()

    def GPU(self, duration: Callable[..., int]) -> Callable[..., Any]:
        def decorate(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            def lent(*args: Any) -> Iterator[Any]:
                self.durations.append(duration(*args))
                if self.refuse_with:
                    raise gr.Error(self.refuse_with, title="ZeroGPU quota exceeded")
                yield from self._forked(function, pickle.dumps(args))

            return lent

        return decorate

    def _forked(self, function: Callable[..., Iterator[Any]], args: bytes) -> Iterator[Any]:
        ours, theirs = _FORK.Pipe()
        stop = _FORK.Event()
        child = _FORK.Process(target=self._work, args=(function, args, theirs, stop), daemon=True)
        child.start()
        theirs.close()
        try:
            while True:
                kind, value = pickle.loads(ours.recv_bytes())
                if kind == "end":
                    return
                if kind == "error":
                    raise gr.Error(value, title="ZeroGPU worker error")
                yield value
        except EOFError as error:
            raise gr.Error("GPU task aborted") from error
        finally:
            stop.set()
            child.join(timeout=20)
            ours.close()

    def _work(self, function, args: bytes, pipe, stop) -> None:
        values = function(*pickle.loads(args))
        try:
            for value in values:
                pipe.send_bytes(pickle.dumps(("ok", value)))
                if stop.is_set():
                    values.close()
                    self.stopped_in_child.set()
                    return
            pipe.send_bytes(pickle.dumps(("end", None)))
        except Exception as error:  # noqa: BLE001 - the real one sends the class name of anything
            pipe.send_bytes(pickle.dumps(("error", type(error).__name__)))
        except BrokenPipeError:
            return
