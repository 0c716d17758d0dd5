"""The stacks compute what the papers' own programs compute, from their checkpoints (where FB_FAIRSEQ_DATA is set)."""

import pytest
import torch
import torch.nn.functional as F

from fb_fairseq.modules import FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions

FILES = [
    "adaptive-span.plain",
    "adaptive-span.adaptive_span",
    "transformer-sequential.transformer_pre",
    "transformer-sequential.per_layer_pre",
    "transformer-sequential.per_layer_pre_span",
    "transformer-sequential.shared_pre",
    "transformer-sequential.shared_pre_span",
    "transformer-sequential.shared_post",
]


def rebuild(settings, saved):
    """A stack with the checkpoint's weights. Projections there have no biases."""
    get = settings.get
    spans = get("adapt_span_params") or {
        "adapt_span_enabled": settings.get("adapt_span"), "adapt_span_ramp": settings.get("adapt_span_len")
    }
    feedback, shared = bool(get("feedback")), bool(get("share_proj_kv"))
    options = TransformerOptions(
        decoder_layers=get("nb_layers") or get("nlayers"),
        decoder_embed_dim=get("hidden_size") or get("hid_sz"),
        decoder_ffn_embed_dim=get("inner_hidden_size") or get("inner_hid_sz"),
        decoder_attention_heads=get("nb_heads") or get("nheads"),
        decoder_head_dim=get("head_dim") or 0,
        decoder_normalize_before=bool(get("pre_norm")),
        attention_span=get("attn_span") or get("attn_lim"),
        memory_projections="shared" if shared else "per-layer",
        adaptive_span=bool(spans["adapt_span_enabled"]),
        adaptive_span_ramp=spans["adapt_span_ramp"],
    )
    stack = (FeedbackTransformer if feedback else RelativeTransformer)(options)
    state = {name: torch.zeros_like(value) for name, value in stack.state_dict().items()}

    def attention(l, name):
        return saved[f"layers.{l}.attn.proj_{name}.weight"]

    positions = saved["key_pe"] if "key_pe" in saved else saved["layers.0.attn.attn.key_pe"]
    state["positions.key"] = positions[0].t().flip(0)
    for l in range(options.decoder_layers):
        own = f"layers.{l}."
        state[own + "self_attn.q_proj.weight"] = attention(l, "query")
        state[own + "self_attn.out_proj.weight"] = attention(l, "out")
        if not shared:
            state[own + "self_attn.k_proj.weight"] = attention(l, "key")
            state[own + "self_attn.v_proj.weight"] = attention(l, "val")
        for end in ("weight", "bias"):
            state[f"{own}self_attn_layer_norm.{end}"] = saved[f"{own}norm1.{end}"]
            state[f"{own}final_layer_norm.{end}"] = saved[f"{own}norm2.{end}"]
            state[f"{own}fc1.{end}"] = saved[f"{own}ff.fc1.{end}"]
            state[f"{own}fc2.{end}"] = saved[f"{own}ff.fc2.{end}"]
            if options.decoder_normalize_before:
                state[f"layer_norm.{end}"] = saved[f"out_norm.{end}"]
                if shared:
                    state[f"memory.layer_norm.{end}"] = saved[f"layers.0.norm1.{end}"]
        for name in (own + "attn.attn.adaptive_span._mask.current_val", own + "attn.attn.adaptive_span.mask.size_ratio"):
            if name in saved:
                state[own + "self_attn.adaptive_span.z"] = saved[name].flatten()
    if feedback:
        state["memory.layer_weights"] = saved["single_memory_attn_params"][0]
    if shared:
        state["memory.k_proj.weight"], state["memory.v_proj.weight"] = attention(0, "key"), attention(0, "val")
    stack.load_state_dict(state)
    return stack.eval()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cuts", [[5], [1, 3, 1]])
def test_log_probabilities_and_carried_state(shared_data, name, cuts):
    file = torch.load(shared_data / f"original-checkpoints/{name}.pt", weights_only=True)
    saved = {key[len("module.") :]: value for key, value in file["checkpoint"]["model"].items()}
    stack = rebuild(file["settings"], saved)

    def memory(hidden):  # [S, B, D] of the Feedback Transformer's one memory, [B, S, D] of a Transformer's layers
        by_step = [h if isinstance(stack, FeedbackTransformer) else h.transpose(0, 1) for h in hidden]
        return torch.stack(by_step)

    out = "out_emb" if "out_emb.weight" in saved else "out.out_emb"
    state, outputs = StreamState(memory(file["carried_hidden"])), []
    for tokens in file["tokens"].split(cuts, 1):
        y_TBD, state = stack(F.embedding(tokens, saved["in_emb.weight"]).transpose(0, 1), state)
        outputs.append(F.linear(y_TBD, saved[f"{out}.weight"], saved[f"{out}.bias"]).log_softmax(-1).transpose(0, 1))
    torch.testing.assert_close(torch.cat(outputs, 1), file["output"], atol=1e-5, rtol=1e-5)
    ours, theirs = state.memory_KCBD, memory(file["next_hidden"])
    theirs = theirs[:, -ours.shape[1] :]
    new = file["tokens"].shape[1]
    torch.testing.assert_close(ours[:, :-new], theirs[:, :-new], atol=1e-5, rtol=1e-5)
    if isinstance(stack, FeedbackTransformer) and file["settings"]["pre_norm"]:
        # The program carries on normalised memories, and normalises them once more in the next block: where it cuts
        # a stream changes its result. Ours carries what it will normalise.
        norm = stack.memory.layer_norm if stack.memory.shared else stack.layers[0].self_attn_layer_norm
        ours = F.layer_norm(ours, ours.shape[-1:], norm.weight, norm.bias)
    torch.testing.assert_close(ours[:, -new:], theirs[:, -new:], atol=1e-5, rtol=1e-5)
