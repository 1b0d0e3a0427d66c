"""Fitting a draft: the fast training forward against decoding, masks, resume, and a real gain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_pair import write_tiny_pair
from transformers import LlamaConfig, LlamaForCausalLM

from dflash.errors import CheckpointError, DFlashError, PromptError
from dflash.generate import dflash_generate
from dflash.model import DFlashDraftModel, DraftCache, load_draft
from dflash.pairs import resolve_pair
from dflash.schema import SamplingParams
from dflash.train.acceptance import block_hidden, measure_acceptance
from dflash.train.blocks import build_blocks, default_gamma, position_weights, random_anchors
from dflash.train.fit_command import DraftOrder, make_draft, save_draft
from dflash.train.forward import blocks_hidden
from dflash.train.generation import generate_all, generate_batch, speed_up_attention
from dflash.train.loss import draft_loss, scored_tokens
from dflash.train.new_draft import new_draft
from dflash.train.recipe import FitRecipe, fit_draft, split_rows
from dflash.train.states import TargetStates, tapped_forward
from dflash.train.synthesis import Row, read_rows, read_turns, synthesise
from dflash.train.tokenizer import MASK, train_tokenizer

_MASK, _VOCAB, _BLOCK = 3, 40, 5


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=_VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=1, initializer_range=0.2, pad_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture
def draft(target: LlamaForCausalLM) -> DFlashDraftModel:
    return new_draft(
        target,
        block_size=_BLOCK,
        num_layers=2,
        target_layer_ids=(1, 2),
        mask_token_id=_MASK,
        seed=1,
    ).eval()


def _rows(num: int) -> list[Row]:
    generator = torch.Generator().manual_seed(5)
    rows = []
    for i in range(num):
        prompt = torch.randint(4, _VOCAB, (3 + i % 3,), generator=generator).tolist()
        answer = torch.randint(4, _VOCAB, (8 + i % 5,), generator=generator).tolist()
        rows.append(Row("chat" if i % 2 else "code", f"turn {i}", tuple(prompt), tuple(answer)))
    return rows


def test_the_training_forward_says_what_decoding_says_at_every_anchor(
    target: LlamaForCausalLM, draft: DFlashDraftModel, tmp_path: Path
):
    rows = _rows(2)
    states = TargetStates(target, draft.target_layer_ids, rows, tmp_path)
    batch = states.batch([0, 1])
    anchors = torch.tensor([[3, 9, 6], [7, 4, -1]])
    blocks = build_blocks(batch.ids, batch.lengths, anchors, block_size=_BLOCK, mask_token_id=_MASK)
    hidden = block_hidden(
        draft, target, batch, blocks.slot_ids, blocks.position_ids, blocks.attention_mask()
    )
    for row, column in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]:
        at = int(anchors[row, column])
        slots = torch.tensor([[int(batch.ids[row, at])] + [_MASK] * (_BLOCK - 1)])
        cache = DraftCache(draft.config)
        # Context fed in two parts, as a decode loop does: the cache must not matter either.
        for start, end in ((0, at - 1), (at - 1, at)):
            context = batch.tapped[row : row + 1, start:end].float()
            positions = torch.arange(start, end + _BLOCK)[None]
            slow = draft(target.model.embed_tokens(slots), context, positions, cache)
        torch.testing.assert_close(hidden[row, column], slow[0], atol=1e-5, rtol=1e-4)


def test_the_split_forward_of_the_fit_is_the_modules_own_under_the_mask_of_all_blocks(
    target: LlamaForCausalLM, draft: DFlashDraftModel, tmp_path: Path
):
    batch = TargetStates(target, draft.target_layer_ids, _rows(2), tmp_path).batch([0, 1])
    anchors = torch.tensor([[3, 9, 6], [7, 4, -1]])
    blocks = build_blocks(batch.ids, batch.lengths, anchors, block_size=_BLOCK, mask_token_id=_MASK)
    places = (blocks.slot_ids, blocks.position_ids)
    whole = block_hidden(draft, target, batch, *places, blocks.attention_mask())
    embeds = target.model.embed_tokens(blocks.slot_ids)
    split = blocks_hidden(draft, embeds, batch.tapped.float(), places[1], blocks.sees_context)
    torch.testing.assert_close(split, whole, atol=1e-5, rtol=1e-4)


def test_a_block_sees_only_what_lies_before_its_anchor_and_its_own_slots():
    ids = torch.arange(12)[None]
    blocks = build_blocks(
        ids, torch.tensor([12]), torch.tensor([[4, 10]]), block_size=3, mask_token_id=99
    )
    mask = blocks.attention_mask()[0, 0]
    for block, anchor in enumerate((4, 10)):
        for slot in range(3):
            row = mask[block * 3 + slot]
            assert row[:12].tolist() == [p < anchor for p in range(12)]
            assert row[12:].tolist() == [k // 3 == block for k in range(6)]
    assert blocks.slot_ids.tolist() == [[4, 99, 99, 10, 99, 99]]
    assert blocks.position_ids[0, 12:].tolist() == [4, 5, 6, 10, 11, 12]
    assert blocks.label_is_real.tolist() == [[[True, True], [True, False]]]


def test_anchors_differ_lie_in_the_answer_and_are_spare_where_it_is_too_short():
    generator = torch.Generator().manual_seed(0)
    anchors = random_anchors(torch.tensor([5, 2]), torch.tensor([9, 30]), 6, generator)
    assert sorted(anchors[0].tolist()) == [-1, -1, -1, 5, 6, 7]  # 8 is only ever a label
    assert len(set(anchors[1].tolist())) == 6 and all(2 <= a < 29 for a in anchors[1].tolist())


def test_loss_weights_are_the_papers():
    assert [default_gamma(b) for b in (8, 16)] == [4, 7]
    assert default_gamma(10) == pytest.approx(5, abs=0.3)
    weights = position_weights(4, 2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.718281828**-0.5, 2.718281828**-1.0])


def test_the_loss_over_all_tokens_is_the_plain_weighted_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    hidden, teacher = (torch.randn(6, 8, generator=generator) for _ in range(2))
    head = torch.randn(11, 8, generator=generator)
    labels = torch.randint(11, (6,), generator=generator)
    weights = torch.rand(6, generator=generator)
    ours = draft_loss(
        hidden, teacher, labels, weights, head, scored=torch.arange(11), hard_share=0.25
    )
    log_q = (hidden @ head.T).log_softmax(-1)
    p = (teacher @ head.T).softmax(-1)
    slow = sum(
        weights[i] * -(0.75 * (p[i] * log_q[i]).sum() + 0.25 * log_q[i, labels[i]])
        for i in range(6)
    )
    assert ours.item() == pytest.approx((slow / weights.sum()).item(), rel=1e-5)


def test_every_label_is_scored_and_as_many_tokens_at_every_step():
    labels, frequent = torch.tensor([7, 30, 7]), torch.tensor([1, 2])
    for seed in range(5):
        scored = scored_tokens(labels, frequent, 40, 3, torch.Generator().manual_seed(seed))
        assert {1, 2, 7, 30} <= set(scored.tolist()) and len(scored) == 5
        assert scored.tolist() == sorted(set(scored.tolist()))
    assert len(scored_tokens(labels, frequent, 40, 1000, torch.Generator())) == 40


def test_cached_states_are_the_targets_own_and_survive_a_restart(
    target: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = _rows(3)
    first = TargetStates(target, (1, 3), rows, tmp_path).batch([2, 0])
    ids = torch.tensor([[*rows[2].prompt_ids, *rows[2].answer_ids]])
    out = target.model(ids, output_hidden_states=True)
    expected = torch.cat((out.hidden_states[2], out.hidden_states[4]), dim=-1)
    n = ids.shape[1]
    torch.testing.assert_close(first.tapped[0, :n].float(), expected[0], atol=0.02, rtol=0.02)
    torch.testing.assert_close(
        first.final[0, :n].float(), out.last_hidden_state[0], atol=0.02, rtol=0.02
    )
    monkeypatch.setattr("dflash.train.states.tapped_forward", None)  # must not run again
    again = TargetStates(target, (1, 3), rows, tmp_path).batch([2, 0])
    assert torch.equal(again.tapped, first.tapped)


def test_padding_on_the_right_changes_no_state(target: LlamaForCausalLM):
    ids = torch.randint(4, _VOCAB, (1, 7), generator=torch.Generator().manual_seed(1))
    alone, _ = tapped_forward(target, ids, (1, 3))
    padded, _ = tapped_forward(
        target, torch.cat((ids, torch.zeros(1, 4, dtype=torch.long)), 1), (1, 3)
    )
    torch.testing.assert_close(padded[:, :7], alone, atol=1e-5, rtol=1e-5)


def _greedy(model: LlamaForCausalLM, prompt: list[int], num: int) -> list[int]:
    ids = torch.tensor([prompt])
    for _ in range(num):
        ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(dim=-1)), dim=1)
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("grouped", [False, True])
def test_batched_answers_are_the_ones_each_prompt_gets_alone(
    target: LlamaForCausalLM, grouped: bool
):
    model = LlamaForCausalLM(target.config).eval()
    model.load_state_dict(target.state_dict())
    if grouped:
        speed_up_attention(model)
        assert model.config._attn_implementation == "grouped_sdpa"
    prompts = [list(row.prompt_ids) for row in _rows(7)]
    alone = [_greedy(target, p, 20) for p in prompts]
    # Tokens that some answers contain end them early, so rows leave the batch at different times.
    stop = frozenset({alone[0][4], alone[3][9]})
    batched = generate_batch(
        model, prompts, sampling=SamplingParams(max_new_tokens=20), stop_ids=stop
    )
    for answer, full in zip(batched, alone, strict=True):
        end = next((i + 1 for i, t in enumerate(full) if t in stop), len(full))
        assert list(answer.ids) == full[:end]
        assert answer.ended == (full[end - 1] in stop)


def test_batches_return_every_prompt_once(target: LlamaForCausalLM):
    prompts = [[5] * n for n in (4, 2, 9, 2, 5)]
    batches = generate_all(
        target,
        prompts,
        sampling=SamplingParams(max_new_tokens=3),
        stop_ids=frozenset(),
        batch_size=2,
    )
    assert sorted(a.index for batch in batches for a in batch) == [0, 1, 2, 3, 4]


def test_held_out_rows_share_no_prompt_with_training():
    rows = _rows(12) + _rows(4)  # four prompts stand in there twice
    train, held_out = split_rows(rows, 4)
    assert len(held_out) == 4 and {rows[i].kind for i in held_out} == {"chat", "code"}
    assert not {rows[i].user for i in train} & {rows[i].user for i in held_out}


def test_a_saved_draft_has_the_published_fields_and_names_and_loads_unchanged(
    draft: DFlashDraftModel, tmp_path: Path
):
    save_draft(draft, tmp_path / "draft", {"num_rows": 1})
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"] and config["model_type"] == "qwen3"
    assert config["block_size"] == _BLOCK and config["num_target_layers"] == 5
    assert config["dflash_config"] == {"mask_token_id": _MASK, "target_layer_ids": [1, 2]}
    assert config["layer_types"] == ["full_attention"] * 2
    loaded = load_draft(tmp_path / "draft")
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor.float(), draft.state_dict()[name].bfloat16().float()), name
    assert not (tmp_path / "draft.tmp").exists()


def _counting_rows(num: int, seed: int) -> list[Row]:
    """Text that a draft can learn: count upwards from a start, modulo 32."""
    starts = torch.randint(32, (num,), generator=torch.Generator().manual_seed(seed)).tolist()
    return [
        Row("chat", f"{seed} {i}", (2, 4 + s), tuple(4 + (s + k) % 32 for k in range(1, 25)))
        for i, s in enumerate(starts)
    ]


def test_a_short_fit_turns_a_useless_draft_into_a_good_one_and_a_killed_fit_goes_on(
    target: LlamaForCausalLM, draft: DFlashDraftModel, tmp_path: Path
):
    rows = _counting_rows(200, 3)
    recipe = FitRecipe(
        minutes=2.0, num_steps=120, num_anchors=12, rows_per_step=16, hard_share=1.0, matrix_rate=0.02,
        other_rate=5e-3, num_held_out=8, report_every_s=1.0, save_every_s=0.5, compiled=False,
    )  # fmt: skip
    states = TargetStates(target, draft.target_layer_ids, rows, tmp_path / "before")
    kinds = [row.kind for row in rows]
    before = measure_acceptance(draft, target, states, range(8), kinds)
    first = next(fit_draft(draft, target, rows, tmp_path, recipe=recipe))  # then killed
    fresh = new_draft(
        target,
        block_size=_BLOCK,
        num_layers=2,
        target_layer_ids=(1, 2),
        mask_token_id=_MASK,
        seed=9,
    )
    reports = list(fit_draft(fresh, target, rows, tmp_path, recipe=recipe))
    assert reports[0].step > 0 and reports[-1].step > first.step
    assert reports[-1].step == 120
    assert before.tau < 1.6
    assert reports[-1].acceptance.tau > max(2.2, before.tau + 1)
    positions = reports[-1].acceptance.by_position
    assert len(positions) == _BLOCK - 1 and list(positions) == sorted(positions, reverse=True)


def test_simulated_tau_is_the_tau_of_decoding(
    target: LlamaForCausalLM, draft: DFlashDraftModel, tmp_path: Path
):
    prompts = [row.prompt_ids for row in _rows(6)]
    answers = generate_batch(
        target, prompts, sampling=SamplingParams(max_new_tokens=24), stop_ids=frozenset({1})
    )
    rows = [Row("chat", str(a.index), prompts[a.index], a.ids) for a in answers if len(a.ids) > 2]
    assert len(rows) >= 3
    recipe = FitRecipe(
        num_steps=20, num_anchors=12, rows_per_step=3, num_held_out=1, matrix_rate=0.02, compiled=False,
    )  # fmt: skip
    list(fit_draft(draft, target, rows, tmp_path, recipe=recipe))
    draft.eval()
    states = TargetStates(target, draft.target_layer_ids, rows, tmp_path / "states")
    for i, row in enumerate(rows):
        simulated = measure_acceptance(draft, target, states, [i], ["chat"] * len(rows))
        decoded = draft.spec_generate(
            target, torch.tensor([row.prompt_ids]), max_new_tokens=24, block_size=_BLOCK
        )
        assert decoded[0, len(row.prompt_ids) :].tolist() == list(row.answer_ids)
        stats = dflash_generate(
            draft, target, torch.tensor([row.prompt_ids]), max_new_tokens=24,
            block_size=_BLOCK, return_stats=True,
        )  # fmt: skip
        assert abs(simulated.num_cycles - len(stats.acceptance_lengths)) <= 1


def test_rows_resume_after_a_kill_in_the_middle_of_a_line(target: LlamaForCausalLM, tmp_path: Path):
    class Tokenizer:
        chat_template = None
        bos_token_id = 0

        def __call__(self, text: str, **_: object):
            ids = [4 + ord(c) % 30 for c in text] or [4]
            return type("E", (), {"input_ids": ids})

        def decode(self, ids: list[int], **_: object) -> str:
            return "".join(chr(97 + i % 26) for i in ids)

    path = tmp_path / "rows.jsonl"
    options = {"stop_ids": frozenset(range(20)), "max_new_tokens": 6, "batch_size": 4}
    turns = [("chat", f"question {i}") for i in range(9)]
    synthesise(target, Tokenizer(), path, num_rows=5, turns=turns, **options)
    whole = path.read_text()
    path.write_text(whole + '{"kind": "chat", "user": "cut o')
    rows = synthesise(target, Tokenizer(), path, num_rows=9, turns=turns, **options)
    assert sorted(row.user for row in rows) == sorted(user for _, user in turns)
    assert path.read_text().startswith(whole) and read_rows(path) == rows
    invented = synthesise(target, Tokenizer(), tmp_path / "own.jsonl", num_rows=6, **options)
    assert len(invented) >= 6 and all(row.answer_ids for row in invented)


def test_a_broken_row_or_prompt_file_names_its_line(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"kind": 1}\n')
    with pytest.raises(CheckpointError, match="line 1"):
        read_rows(path)
    for junk in ('{"turns": []}', '{"turns": "hello"}', '{"turns": [null]}', '{"prompt": " "}'):
        path.write_text('{"category": "code", "turns": ["hi"]}\n\n' + junk)
        with pytest.raises(PromptError, match="x.jsonl:3: 'turns' must be"):
            read_turns(path)
    path.write_text('{"category": "code", "turns": ["hi"]}\n{"prompt": "yo"}\n')
    assert read_turns(path) == [("code", "hi"), ("other", "yo")]


@pytest.fixture(scope="module")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": "nope.jsonl"}, "nope.jsonl: cannot be read"),
        ({"prompts": "."}, "cannot be read .IsADirectoryError"),
        ({"prompts": "binary"}, "cannot be read .UnicodeDecodeError"),
        ({"rows": "nope"}, "training rows .*nope cannot be read .FileNotFoundError"),
        ({"rows": "binary"}, "cannot be read .UnicodeDecodeError"),
        ({"output": "binary/x"}, "could not be written"),
        ({"output": "binary/x", "work": "work"}, "could not be written"),
        ({"num_taps": 0}, "at least one tapped layer is needed, got 0"),
        ({"num_taps": 5}, "a 4-layer target cannot give 5 different layers"),
        ({"target_layer_ids": (99,)}, "layer 99, but this target has 4 layers"),
        ({"block_size": 1, "num_taps": 1}, "block_size 1 would draft nothing"),
        ({"mask_token_id": 9999, "num_taps": 1}, "mask_token_id 9999 is outside the target's"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused_in_a_sentence_before_any_answer_is_made(
    changes: dict, words: str, tiny_pair: tuple[Path, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr("dflash.train.fit_command.synthesise", None)  # must not come so far
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in {"prompts", "output", "work"} & changes.keys():
        changes = changes | {name: tmp_path / changes[name]}
    if "rows" in changes:
        changes = {"rows": (tmp_path / changes["rows"],)}
    order = {"target": str(tiny_pair[0]), "output": tmp_path / "out"} | changes
    with pytest.raises(DFlashError, match=words):
        make_draft(DraftOrder(**order))


def test_a_draft_given_as_the_target_is_told_apart(tiny_pair: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(CheckpointError, match="lm_head.weight.* missing.*not that of a draft"):
        make_draft(DraftOrder(target=str(tiny_pair[1]), output=tmp_path / "out"))


def test_a_target_without_a_tokenizer_is_told_so(target: LlamaForCausalLM, tmp_path: Path):
    target.save_pretrained(tmp_path / "bare")
    order = DraftOrder(
        target=str(tmp_path / "bare"), output=tmp_path / "out", target_layer_ids=(1,)
    )
    with pytest.raises(CheckpointError, match="tokenizer of .*bare' cannot be loaded"):
        make_draft(order)


def test_the_command_goes_from_a_target_folder_to_a_draft_that_decodes(tmp_path: Path):
    tokenizer = train_tokenizer(
        ["Write a Python function to add.", "What is a dog? Tell me about it."],
        tmp_path / "target",
        vocab_size=300,
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "target")
    order = DraftOrder(
        target=str(tmp_path / "target"), output=tmp_path / "draft", num_rows=24, max_new_tokens=12,
        block_size=4, num_layers=1, num_taps=2, batch_size=8,
        fit=FitRecipe(
            num_steps=3, rows_per_step=4, num_anchors=4, num_held_out=6, compiled=False
        ),
    )  # fmt: skip
    report = make_draft(order)
    assert report.step == 3 and len(report.acceptance.by_position) == 3
    pair = resolve_pair(str(tmp_path / "target"), str(tmp_path / "draft"))
    assert pair.mask_token_id == tokenizer.convert_tokens_to_ids(MASK)
    assert pair.target_layer_ids == (1, 2)
    target = LlamaForCausalLM.from_pretrained(tmp_path / "target").eval()
    ids = tokenizer("What", return_tensors="pt").input_ids
    output = load_draft(pair.draft_id).spec_generate(target, ids, max_new_tokens=10)
    assert output[0, ids.shape[1] :].tolist()[:3] == _greedy(target, ids[0].tolist(), 3)
    # A second call finds rows and fit done, and only writes the checkpoint again.
    assert make_draft(order).step == 3
