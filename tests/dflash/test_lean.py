"""The lean CPU forwards against the modules they replace, on tiny random models."""

import weakref

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dflash import lean_linear, lean_products
from dflash.drafts import ModuleDraft
from dflash.lean import LeanDraft, LeanTarget
from dflash.lean_linear import WIDTHS, LeanLinear
from dflash.model import DraftCache
from dflash.targets import cache_keyword
from tests.tiny_models import build_draft, build_target

VOCAB = 300
TAPS = (2, 0)
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama-biases": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "llama-llama3": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "qwen3": Qwen3Config(**SHAPE, head_dim=24, tie_word_embeddings=True),
    "qwen3-yarn": Qwen3Config(**SHAPE, head_dim=24, attention_bias=True, rope_parameters=YARN),
}


def make(name: str) -> nn.Module:
    """A random model whose every parameter matters, biases and norm gains included."""
    torch.manual_seed(1)
    config = CONFIGS[name]
    model = (LlamaForCausalLM if name.startswith("llama") else Qwen3ForCausalLM)(config).eval()
    shake(model)
    return model


def shake(model: nn.Module) -> None:
    """Move parameters away from their neutral initial values."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.1)


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    return make(request.param)


def reference(model, ids):
    """Logits [n, V] and tapped states [1, n, K*D] of one plain forward over everything."""
    with torch.inference_mode():
        output = model(ids, output_hidden_states=True)
    states = [output.hidden_states[i + 1] for i in TAPS]
    return output.logits[0], torch.cat(states, -1)


def text(num: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, (1, num), generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal to within float32 rounding, relative to the largest value."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_every_width_gives_the_models_own_logits_and_layer_outputs(model):
    assert LeanTarget.supports(model)
    widths = [5, *range(1, 17), 20, 40]
    ids = text(sum(widths))
    wanted, states = reference(model, ids)
    lean = LeanTarget(model, TAPS)
    cache = lean.new_cache(ids.shape[1])
    for width in widths:
        start = cache.length
        logits, hidden = lean.forward(ids[:, start : start + width], cache, width, True)
        close(logits, wanted[start : start + width])
        close(hidden, states[:, start : start + width])
    assert cache.length == ids.shape[1]


@pytest.mark.parametrize("num_prompt", [1, 7, 16, 17, 200])
def test_a_prompt_of_any_length_is_read_in_one_forward(model, num_prompt):
    ids = text(num_prompt)
    wanted, _ = reference(model, ids)
    lean = LeanTarget(model, ())
    logits, hidden = lean.forward(ids, lean.new_cache(num_prompt), 1, False)
    close(logits, wanted[-1:])
    assert hidden is None


def test_after_a_rollback_nothing_of_the_rejected_positions_is_left(model):
    lean = LeanTarget(model, TAPS)
    ids, wrong = text(40), text(8, seed=9)
    wanted, _ = reference(model, ids)
    cache = lean.new_cache(48)
    lean.forward(ids[:, :20], cache, 1, True)
    lean.forward(torch.cat((ids[:, 20:23], wrong), 1), cache, 11, True)
    cache.rollback(8)
    logits, _ = lean.forward(ids[:, 23:40], cache, 17, True)
    close(logits, wanted[23:])


def test_runs_on_the_same_weights_may_be_interleaved(model):
    lean = LeanTarget(model, ())
    texts = [text(24, seed=1), text(24, seed=2)]
    wanted = [reference(model, ids)[0] for ids in texts]
    caches = [lean.new_cache(24), lean.new_cache(100)]
    for start in range(0, 24, 6):
        for ids, cache, logits_wanted in zip(texts, caches, wanted, strict=True):
            logits, _ = lean.forward(ids[:, start : start + 6], cache, 6, False)
            close(logits, logits_wanted[start : start + 6])


def test_greedy_steps_are_the_models_own_generate(model):
    ids = text(12)
    wanted = model.generate(ids, max_new_tokens=40, do_sample=False, eos_token_id=None)
    lean = LeanTarget(model, ())
    cache = lean.new_cache(60)
    new, found = ids, ids
    for _ in range(40):
        logits, _ = lean.forward(new, cache, 1, False)
        new = logits.argmax(-1)[None]
        found = torch.cat((found, new), 1)
    assert found.tolist() == wanted.tolist()


def test_fusing_leaves_the_model_as_it_was():
    model, untouched = make("llama-biases"), make("llama-biases")
    LeanTarget(model, ())
    for name, parameter in untouched.state_dict().items():
        assert torch.equal(model.state_dict()[name], parameter), name


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("through_data", [False, True])  # as merging an adapter does
def test_weights_changed_in_place_are_seen_by_the_next_lean_target(name, through_data):
    model = make("llama-biases")
    LeanTarget(model, ())
    parameter = getattr(model.model.layers[1].mlp.up_proj, name)
    with torch.no_grad():
        (parameter.data if through_data else parameter).mul_(2.0)
    ids = text(6)
    lean = LeanTarget(model, ())
    close(lean.forward(ids, lean.new_cache(6), 6, False)[0], reference(model, ids)[0])


def test_bfloat16_stays_within_its_own_rounding():
    model = make("qwen3")
    ids = text(30)
    wanted, _ = reference(model, ids)
    lean = LeanTarget(model.to(torch.bfloat16), ())
    cache = lean.new_cache(30)
    found = [lean.forward(ids[:, i : i + 6], cache, 6, False)[0] for i in range(0, 30, 6)]
    assert (torch.cat(found).float() - wanted).abs().max() < 0.05 * wanted.abs().max()


def test_a_full_cache_says_how_large_it_must_be():
    lean = LeanTarget(make("llama"), ())
    cache = lean.new_cache(4)
    with pytest.raises(ValueError, match="holds 4 positions; 5 are needed"):
        lean.forward(text(5), cache, 1, False)
    with pytest.raises(ValueError, match="num_rejected"):
        cache.rollback(1)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2,
        },
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_computed_exactly_is_refused(change):
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=24, **change))
    assert not LeanTarget.supports(model)


def test_wrapped_projections_and_other_classes_are_refused():
    model = make("llama")
    assert not LeanTarget.supports(build_target("sliding"))
    model.model.layers[0].self_attn.q_proj = nn.Sequential(nn.Linear(96, 96))
    assert not LeanTarget.supports(model)


def test_what_a_hook_changes_is_not_left_out():
    model = make("llama")
    reference(model, text(3))  # transformers keeps hooks from this on, which only watch
    assert LeanTarget.supports(model)
    hook = model.model.layers[1].register_forward_hook(lambda _module, _args, out: out * 2)
    assert not LeanTarget.supports(model)
    hook.remove()
    assert LeanTarget.supports(model)
    hook = model.lm_head.register_forward_pre_hook(lambda _module, args: (-args[0],))
    assert not LeanTarget.supports(model)
    hook.remove()
    model.model.layers[0].mlp.forward = lambda x: x
    assert not LeanTarget.supports(model)


@pytest.mark.parametrize("sizes", [(8, 6), (8, 5), (7, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_changed_weight_is_noticed_whatever_its_shape_and_place_in_memory(sizes, dtype):
    storage = torch.randn(1 + sizes[0] * sizes[1]).to(dtype)
    layer = nn.Linear(*sizes, bias=False)
    for weight in (storage[:-1].view(sizes[::-1]), storage[1:].view(sizes).t()):
        layer.weight.data = weight
        before = lean_linear._fingerprint((layer,))
        assert lean_linear._fingerprint((layer,)) == before
        layer.weight.data[1, 1] *= 2
        assert lean_linear._fingerprint((layer,)) != before


@pytest.mark.parametrize("width", [*WIDTHS, 3, 11])
@pytest.mark.parametrize("has_bias", [False, True])
def test_every_formulation_is_the_same_product(width, has_bias):
    layers = [nn.Linear(48, 40, bias=has_bias), nn.Linear(48, 64, bias=has_bias)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(layer.weight.bfloat16().float())
    linear = LeanLinear(layers, adopt=False)
    x = torch.randn(width, 48)
    wanted = torch.cat([layer(x) for layer in layers], -1)
    assert set(linear.kinds) >= {"rows", "columns"}
    for kind in linear.kinds:
        close(linear.product(kind)(x), wanted)


def test_half_storage_is_offered_only_where_it_loses_nothing():
    weight = torch.randn(64, 64)
    assert not lean_products.fits_half(weight)
    assert lean_products.fits_half(weight.bfloat16().float())
    assert lean_products.fits_half(weight.half().float() * 2.0**-40)


@pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="needs FBGEMM")
def test_weights_too_large_for_a_cache_are_read_at_half_size(monkeypatch):
    monkeypatch.setattr(lean_linear, "_WORKING_SET_BYTES", 0)
    monkeypatch.setattr(lean_linear, "_plans", {})
    monkeypatch.setattr(lean_linear, "_cached", weakref.WeakKeyDictionary())
    model = make("llama").to(torch.bfloat16).float()
    ids = text(40)
    wanted, _ = reference(model, ids)
    lean = LeanTarget(model, ())
    assert set(lean_linear._plans.values()) == {("half",) * len(WIDTHS)}
    cache = lean.new_cache(40)
    for start in range(0, 40, 8):
        close(
            lean.forward(ids[:, start : start + 8], cache, 8, False)[0], wanted[start : start + 8]
        )


def test_a_busy_machine_keeps_the_default_formulation(monkeypatch):
    monkeypatch.setattr(lean_linear, "_BUDGET_S", 0.0)
    monkeypatch.setattr(lean_linear, "_plans", {})
    linear = LeanLinear([nn.Linear(8, 8)], adopt=False)
    lean_linear.plan([linear])
    assert lean_linear._plans[linear.plan_key] == ("rows",) * len(WIDTHS)


@pytest.mark.parametrize("window", [None, 12])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_lean_draft_proposes_what_its_module_does(kind, window):
    target = build_target(kind)
    draft = build_draft(target, window=window, layers=3)
    shake(draft)
    assert LeanDraft.supports(draft, target)
    lean, module = LeanDraft(draft, target), ModuleDraft(draft, target)
    cache, module_cache = lean.new_cache(200), DraftCache(draft.config)
    generator = torch.Generator().manual_seed(4)
    for num_new, block_size in [(30, 16), (1, 2), (16, 8), (17, 16), (3, 5), (9, 1 + 1)]:
        hidden = torch.randn(1, num_new, 128, generator=generator)
        found = lean.propose(hidden, 7, block_size, cache)
        ids = torch.tensor([[7] + [95] * (block_size - 1)])
        start = module_cache.length
        positions = torch.arange(start, start + num_new + block_size)[None]
        with torch.inference_mode():
            block = draft(module.borrowed.embed(ids), hidden, positions, module_cache)
            close(found, module.borrowed.logits(block[0, 1:]))
    assert cache.length == module_cache.length


@pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="needs int8 instructions")
def test_a_large_head_is_approximated_only_for_drafting(monkeypatch):
    monkeypatch.setattr(lean_linear, "_MIN_INT8_SIZE", 1)
    head = nn.Linear(64, 5000, bias=False)
    x = torch.randn(7, 64)
    wanted = head(x)
    found = lean_linear.drafting_product(head)(x)
    assert 0 < (found - wanted).norm() < 0.03 * wanted.norm()
    assert lean_linear.drafting_product(head) is lean_linear.drafting_product(head)
    close(lean_linear.lean_linear(head)(x), wanted)


def test_draft_settings_that_change_the_logits_are_refused():
    target = build_target("qwen3")
    draft = build_draft(target)
    draft.config.dflash_config["final_logit_softcapping"] = 30.0
    assert not LeanDraft.supports(draft, target)


def test_a_rejected_block_reads_like_a_cache_that_never_saw_it(model):
    """The reference's own cache cropped by transformers, step by step."""
    lean, ids = LeanTarget(model, ()), text(30)
    cache, plain = lean.new_cache(40), DynamicCache(config=model.config)
    start = 0
    for width, rejected in [(10, 0), (8, 5), (4, 4), (16, 15), (2, 1), (9, 0)]:
        logits, _ = lean.forward(ids[:, start : start + width], cache, width, False)
        with torch.inference_mode():
            wanted = model(
                ids[:, start : start + width], use_cache=True, **{cache_keyword(model): plain}
            ).logits[0]
        close(logits, wanted)
        cache.rollback(rejected)
        if rejected:
            plain.crop(-rejected)
        start += width - rejected
