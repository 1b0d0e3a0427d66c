"""Twenty visitors at once: everyone gets his own run, nobody waits to read or to stop."""

from __future__ import annotations

import threading
import time

from app.form import PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.session import EnginePool, Sessions

NUM_VISITORS = 20


def ask(prompt: str, tokens: int) -> PlaygroundForm:
    return PlaygroundForm("demo", "", "", prompt, 8, tokens, 0.0, 0, 0, 1.0, False)


def test_twenty_visitors_each_see_their_own_run(counting_engine):
    engine = counting_engine(busy_s=0.0005)
    handlers = PlaygroundHandlers(
        EnginePool(lambda choice, report: engine), Sessions(), lambda: "a test machine"
    )
    failures: list[str] = []

    def visit(number: int) -> None:
        session_id, prompt, tokens = f"v{number}", f"visitor {number}", 20 + number
        for view in handlers.on_run(ask(prompt, tokens), session_id):
            if view.stage and f'"n":{len(prompt)}' not in view.stage and '"k":"p"' in view.stage:
                failures.append(f"{session_id} saw another prompt")
        run = handlers.sessions.of(session_id).run
        if run.prompt != prompt or run.comparison.dflash.num_output_tokens != tokens:
            failures.append(f"{session_id} got {run.prompt!r}")

    visitors = [threading.Thread(target=visit, args=(n,)) for n in range(NUM_VISITORS)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join(timeout=120)
    assert not failures
    assert engine.most_open_streams == 2 and engine.open_streams == 0
    assert not handlers.pool.device.locked()


def test_replay_what_if_and_stop_never_wait_for_a_generation(counting_engine):
    engine = counting_engine(busy_s=0.01)
    handlers = PlaygroundHandlers(
        EnginePool(lambda choice, report: engine), Sessions(), lambda: "a test machine"
    )
    list(handlers.on_run(ask("short", 40), "reader"))
    shown = handlers.sessions.of("reader").run
    running = threading.Thread(target=lambda: list(handlers.on_run(ask("long", 3000), "writer")))
    running.start()
    while not engine.open_streams:
        time.sleep(0.01)
    waiting = threading.Thread(target=lambda: list(handlers.on_run(ask("queued", 40), "queued")))
    waiting.start()
    handlers.on_pressed("queued")
    assert handlers.on_what_if(4, "reader").text
    assert handlers.on_recall(shown.id, "reader").headline
    handlers.sessions.of("queued").stop.set()
    waiting.join(timeout=5)
    assert not waiting.is_alive() and engine.open_streams == 2
    handlers.on_stop("writer")
    running.join(timeout=10)
    assert not running.is_alive()


def test_memory_of_visitors_who_left_is_given_back(counting_engine):
    handlers = PlaygroundHandlers(
        EnginePool(lambda choice, report: counting_engine()), Sessions(), lambda: "a test machine"
    )
    for number in range(30):
        list(handlers.on_run(ask("x", 10), str(number)))
        handlers.sessions.drop(str(number))
    assert len(handlers.sessions) == 0
