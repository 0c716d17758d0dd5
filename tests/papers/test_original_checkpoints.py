"""From a checkpoint of the papers' own programs, the stacks compute the same (needs FB_FAIRSEQ_DATA)."""

import pytest
import torch
import torch.nn.functional as F

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.papers.import_original.layers import Source, import_layers

SEQUENTIAL = "transformer_pre per_layer_pre per_layer_pre_span shared_pre shared_pre_span shared_post".split()
FILES = [f"adaptive-span.{name}" for name in ("plain", "adaptive_span", "all_attention")]
FILES += [f"transformer-sequential.{name}" for name in SEQUENTIAL]
STACKS = {"relative_transformer_lm": RelativeTransformer, "feedback_transformer_lm": FeedbackTransformer}
STACKS["all_attention_lm"] = AllAttention


def rebuild(source):
    """A stack with the checkpoint's weights."""
    imported = import_layers(source, ramp=4)
    stack = STACKS[imported.options.pop("arch")](TransformerOptions(**imported.options))
    stack.load_state_dict({name[len("decoder.") :]: value for name, value in imported.parameters.items()})
    return stack.eval()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cuts", [[5], [1, 3, 1]])
def test_log_probabilities_and_carried_state(shared_data, name, cuts):
    file = torch.load(shared_data / f"original-checkpoints/{name}.pt", weights_only=True)
    source = Source(name, file["checkpoint"]["model"])
    stack, saved = rebuild(source), source.state

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
        # The program carries normalised memories to the next block and normalises them again there, so its result
        # depends on where a stream is cut. Ours carries them before the norm.
        norm = stack.memory.layer_norm if stack.memory.shared else stack.layers[0].self_attn_layer_norm
        ours = F.layer_norm(ours, ours.shape[-1:], norm.weight, norm.bias)
    torch.testing.assert_close(ours[:, -new:], theirs[:, -new:], atol=1e-5, rtol=1e-5)
