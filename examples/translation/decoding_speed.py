"""Decoding speed and state of feedback and vanilla decoders, in one run (v3 Figure 4, Table 5).

    python examples/translation/decoding_speed.py [--layers 1 2 6] [--lengths 25 200] [--sentences 16] [--cpu]

Models have random parameters, and every hypothesis is made as long as --lengths says, so that all do the same work: the
figures are of speed alone. Sources have 25 words. Beam search is fairseq's own. State: bytes of self-attention keys and values a hypothesis, at
the end.
"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.sequence_generator import SequenceGenerator

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.benchmark.command import hardware
from fb_fairseq.benchmark.measure import table
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel

MODELS = {
    "vanilla": (TransformerModel, {}),
    "feedback, shared": (FeedbackDecoderModel, {"memory_projections": "shared"}),
    "feedback, per-layer": (FeedbackDecoderModel, {"memory_projections": "per-layer"}),
}

SOURCE = 25
GPU_MODELS = {
    "feedback, shared, graph": (FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": "graph"}),
}


def build(kind, layers, args, words):
    model, changes = {**MODELS, **GPU_MODELS}[kind]
    sizes = argparse.Namespace(
        encoder_layers=6,
        decoder_layers=layers,
        encoder_embed_dim=args.embed_dim,
        encoder_ffn_embed_dim=args.ffn_dim,
        encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads,
        share_all_embeddings=True,
        max_source_positions=1024,
        max_target_positions=1024,
        **changes,
    )
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    return model.build_model(sizes, task).to(args.device).eval()


def state_bytes(model, length, device, words):
    """Bytes of the decoder's own keys and values for one hypothesis of full length."""
    source = torch.randint(4, len(words), (1, 20), device=device)
    encoder_out = model.encoder(source, torch.tensor([20], device=device))
    state, target = {}, torch.randint(4, len(words), (1, length), device=device)
    for t in range(1, length + 1):
        model.decoder(target[:, :t], encoder_out=encoder_out, incremental_state=state)
    if hasattr(model.decoder, "memory"):
        ring = model.decoder.get_incremental_state(state, "feedback").ring
        return ring.nbytes() * ring.position // ring.slots
    buffers = [layer.self_attn._get_input_buffer(state) for layer in model.decoder.layers]
    return sum(b[name].numel() * b[name].element_size() for b in buffers for name in ("prev_key", "prev_value"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 6], help="decoder layers")
    parser.add_argument("--embed-dim", type=int, default=512)
    parser.add_argument("--ffn-dim", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=10000)
    parser.add_argument("--sentences", type=int, default=16, help="of one batch")
    parser.add_argument("--lengths", type=int, nargs="+", default=[25, 200], help="tokens of the targets")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="the median is of so many runs, models taking turns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    words = Dictionary()
    for word in range(args.vocabulary - 4):
        words.add_symbol(f"w{word}")
    source = torch.randint(4, len(words), (args.sentences, SOURCE), device=args.device)
    sample = {
        "net_input": {"src_tokens": source, "src_lengths": torch.full((args.sentences,), SOURCE, device=args.device)}
    }
    cases = []
    with torch.no_grad():
        for layers in args.layers:
            for kind in {**MODELS, **GPU_MODELS} if args.device == "cuda" else MODELS:
                model = build(kind, layers, args, words)
                for length in args.lengths:
                    options = dict(beam_size=args.beam, max_len_a=0, max_len_b=length, min_len=length)
                    generator = SequenceGenerator([model], words, **options).to(args.device)
                    size = state_bytes(model, length, args.device, words)
                    cases.append((f"{layers} layers, {length} tokens, {kind}", length, generator, size, []))
        cases.sort(key=lambda case: case[1])  # models take turns
        for _ in range(args.repeats + 1):
            for _, length, generator, _, times in cases:
                start = time.perf_counter()
                found = generator.generate([], sample)
                if args.device == "cuda":
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
                assert all(len(sentence[0]["tokens"]) == length + 1 for sentence in found)
    results, rows = {}, []
    for name, length, _, size, times in cases:
        speed = args.sentences * length / sorted(times[1:])[(len(times) - 1) // 2]
        results[name] = {"words_per_second": round(speed, 1), "state_bytes": size}
        rows.append([name, speed, size])
    table(["", "words/s", "bytes of state a hypothesis"], rows)
    print(
        json.dumps(
            {**results, "setting": {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}}
        )
    )


if __name__ == "__main__":
    main()
