"""The growing string that the browser's stage reads."""

from __future__ import annotations

import json

from app.race import LaneFailed, race
from app.stage import StageEnd, StageHeader, StageWriter


def lines(text):
    return [json.loads(line) for line in text.split("\n") if line]


def written(engine, request):
    writer = StageWriter(lambda i: f"<{i}>")
    writer.header(StageHeader("abc", request.block_size, "measured here"))
    writer.add(race((engine, engine), request))
    return writer


def test_the_string_only_ever_grows(counting_engine, ask):
    writer = StageWriter(str)
    before = ""
    for event in race((counting_engine(), counting_engine()), ask()):
        writer.add([event])
        assert writer.text.startswith(before) and writer.text.endswith("\n")
        before = writer.text


def test_every_token_of_both_lanes_is_told_once(counting_engine, ask):
    told = lines(written(counting_engine(), ask()).text)
    for lane in (0, 1):
        pieces = [line["p"] for line in told if line["k"] == "p" and line["l"] == lane]
        for line in told:
            if line["k"] == "c" and line["l"] == lane:
                pieces += line["p"]
        assert "".join(pieces) == "".join(
            f" t{i}" + ("\n" if i % 12 == 0 else "") for i in range(1, 65)
        )


def test_the_words_of_rejected_drafts_are_told_before_they_are_used(counting_engine, ask):
    known = set()
    for line in lines(written(counting_engine(), ask()).text):
        if line["k"] == "v":
            assert not known & set(line["t"])
            known |= set(line["t"])
        if line["k"] == "c" and line["l"] == 1:
            assert {str(i) for i in [*line["d"], line["b"]]} <= known


def test_text_with_line_breaks_and_markup_stays_one_line_of_json():
    writer = StageWriter(str)
    writer.add([LaneFailed(0, 'a\n<script>alert("x")</script>\u2028')])
    writer.end(StageEnd("say", ("", "left\nright"), None, "aloud"))
    assert writer.text.count("\n") == 2
    assert lines(writer.text)[0]["m"].startswith("a\n<script>")
