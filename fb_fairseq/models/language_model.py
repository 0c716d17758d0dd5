"""What the language models share: configuration, decoder, checkpoint checks."""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Optional

import torch
import torch.nn as nn
from fairseq.data.encoders import build_bpe
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from fairseq.modules import LearnedPositionalEmbedding
from omegaconf import II

from fb_fairseq.errors import UserError
from fb_fairseq.models.initialisation import INIT_OPTIONS, initialise_if_asked
from fb_fairseq.models.pruning import kept_layers, prune_memory
from fb_fairseq.models.word_embeddings import build_word_layers, check_dictionary
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.positions import sinusoidal_positions
from fb_fairseq.modules.ring import STORAGES
from fb_fairseq.ops.layers import ACTIVATIONS, dropout


def option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class LanguageModelConfig(FairseqDataclass):
    """Options that every language model here has. Names are fairseq's where the thing is the same."""

    dropout: float = option(0.0, "dropout of each sublayer's output, before it is added to its input")
    embedding_dropout: float = option(0.0, "dropout of the embedding layer's output")
    output_dropout: float = option(0.0, "dropout of the last sublayer's output")
    decoder_layers: int = option(6, "number of layers")
    decoder_embed_dim: int = option(512, "model width")
    share_decoder_input_output_embed: bool = option(
        False,
        "share input and output embeddings (initialised N(0, 1/D) and scaled by sqrt(D) as fairseq's; "
        "else N(0, 1), unscaled, and an output layer with bias)",
    )
    adaptive_input: bool = option(False, "adaptive input embeddings (Baevski & Auli 2019)")
    adaptive_input_factor: float = option(4, "by what the width shrinks from one cluster to the next")
    adaptive_input_cutoff: Optional[str] = option(None, "first word of each cluster but the first, as 20000,40000")
    adaptive_softmax_cutoff: Optional[str] = option(None, "the same for the adaptive softmax (Grave et al. 2017)")
    adaptive_softmax_dropout: float = option(0.0, "dropout of the tail clusters' projections")
    adaptive_softmax_factor: float = option(4, "by what the width shrinks from one cluster to the next")
    tie_adaptive_weights: bool = option(False, "share the embeddings of adaptive input and softmax")
    tie_adaptive_proj: bool = option(False, "share their projections too")
    resolved_architecture: str = option("", "set by named architectures: whose values these are")
    tokens_per_sample: int = II("task.tokens_per_sample")


@dataclass
class AttentionLMConfig(LanguageModelConfig):
    """Options of the models with attention."""

    attention_dropout: float = option(0.0, "dropout of attention weights")
    decoder_attention_heads: int = option(8, "number of attention heads")
    decoder_head_dim: int = option(0, "width of a head; 0: model width / heads")
    decoder_normalize_before: bool = option(False, "apply layer norm before each sublayer (pre-norm)")
    no_decoder_final_norm: bool = option(False, "no layer norm after the last layer (pre-norm only)")
    attention_span: int = option(512, "how many steps back attention reaches, across blocks")
    adaptive_span: bool = option(False, "let each head learn how far back it reaches, up to --attention-span")
    adaptive_span_loss: float = option(0.0, "loss of one step of mean span a layer, in nats a token")
    adaptive_span_ramp: int = option(32, "steps over which a head's attention fades out at the end of its span")
    adaptive_span_init: float = option(0.0, "spans at the start, as a fraction of --attention-span")
    relative_positions: ChoiceEnum(["key", "key-value", "none"]) = option(
        "key", "learned relative positions for keys, or keys and values; none: fairseq's absolute positions"
    )
    decoder_learned_pos: bool = option(
        False, "learn the absolute positions of --relative-positions none (not on endless streams)"
    )
    memory_storage: ChoiceEnum(list(STORAGES)) = option(
        "keys-values",
        "what decoding keeps of a step: its keys and values, or only the vectors they are projected from (less memory, "
        "more time)",
    )
    checkpoint_activations: bool = option(
        False, "compute the activations of layers (Feedback Transformer: of steps) again in the backward pass"
    )
    decoder_layerdrop: float = option(0.0, "LayerDrop probability, drawn once a block")
    decoder_layers_to_keep: Optional[str] = option(None, "which layers to *keep* when pruning, as 0,2,5")


@dataclass
class TransformerLMConfig(AttentionLMConfig):
    """Options of the models with feed-forward sublayers, which a vanilla Transformer's parameters fit."""

    activation_fn: ChoiceEnum(list(ACTIVATIONS)) = option("relu", "activation function of the feed-forward sublayer")
    activation_dropout: float = option(0.0, "dropout after the activation in the feed-forward sublayer")
    decoder_ffn_embed_dim: int = option(2048, "width of the feed-forward sublayer")
    init_from_transformer: str = option(*INIT_OPTIONS["init_from_transformer"])
    init_layers: str = option(*INIT_OPTIONS["init_layers"])
    init_shared_projections: str = option(*INIT_OPTIONS["init_shared_projections"])


def stack_options(cfg, kind):
    """The options, of that class, of the stack of layers; what a model does not have keeps its default.

    Raises:
        UserError: an option is out of range; the message names it.
    """
    values = {f.name: getattr(cfg, f.name) for f in fields(kind) if hasattr(cfg, f.name)}
    plain = {name: str(value) if isinstance(value, Enum) else value for name, value in values.items()}
    try:
        return kind(**plain)
    except ValueError as error:
        raise UserError(str(error)) from None


class LanguageModelDecoder(FairseqIncrementalDecoder):
    """Embedding, a stack of layers, output projection.

    A subclass also inherits a ``fb_fairseq.modules.stack.TransformerStack``, which does what lies between.
    """

    options_class = TransformerOptions

    def __init__(self, cfg: LanguageModelConfig, dictionary, output_dictionary=None):
        super().__init__(dictionary)
        self.build(stack_options(cfg, self.options_class))
        build_word_layers(self, cfg, dictionary, output_dictionary or dictionary)
        self.memory_storage = str(getattr(cfg, "memory_storage", STORAGES[0]))
        self.absolute_positions = getattr(cfg, "relative_positions", "") == "none"
        self.embed_positions = None
        if self.absolute_positions and cfg.decoder_learned_pos:
            D, positions = cfg.decoder_embed_dim, cfg.tokens_per_sample + dictionary.pad() + 1
            self.embed_positions = LearnedPositionalEmbedding(positions, D, dictionary.pad())
            nn.init.normal_(self.embed_positions.weight, std=D**-0.5)

    def forward(
        self, prev_output_tokens, encoder_out=None, incremental_state=None, features_only=False, stream=None, **_
    ):
        """Predict the next token after each.

        Args:
            prev_output_tokens: [B, T]; padding, if any, on the right.
            incremental_state (dict, optional): decoding; only tokens that are new since the last call are run.
            stream (BlockPlace, optional): where the streams' state is read and written; without it each row
                is an independent sample.

        Returns:
            Logits [B, T, V] (with ``features_only`` features [B, T, D]), in decoding those of the new tokens only, and
            a dict.
        """
        if incremental_state is not None:
            features, extra = self.extract_features_step_by_step(prev_output_tokens, incremental_state)
        else:
            features, extra = self.extract_features(prev_output_tokens, stream=stream)
        return (features if features_only else self.output_layer(features)), extra

    def extract_features(self, prev_output_tokens, encoder_out=None, stream=None, **_):
        state = stream.read() if stream is not None else None
        x_TBD = self.embed(prev_output_tokens, stream.offset if stream is not None else 0).transpose(0, 1)
        y_TBD, state = self.run_block(x_TBD, state)
        if stream is not None:
            stream.write(state, len(x_TBD))
        return y_TBD.transpose(0, 1), {"attn": None, "state": state, **self._report()}

    def _report(self):
        """What ``lm_loss`` adds to the loss, and logs: spans, and in validation the memory's layer weights."""
        report = {}
        if getattr(self.options, "adaptive_span", False):
            lengths = torch.stack([layer.self_attn.adaptive_span.lengths() for layer in self.layers])
            report["logged"] = {"avg_span": lengths.mean(), "max_span": lengths.max()}
            if self.training:
                report["span_penalty"] = self.span_penalty()
        weights = getattr(getattr(self, "memory", None), "layer_weights", None)
        if weights is not None and weights.dim() == 1 and not self.training:
            shares = {f"layer_weight_{l}": share for l, share in enumerate(torch.softmax(weights.float(), 0))}
            report.setdefault("logged", {}).update(shares)
        return report

    def extract_features_step_by_step(self, prev_output_tokens, incremental_state):
        """Features [B, t, D] of the t tokens that the ring in ``incremental_state`` has not seen yet."""
        ring = self.get_incremental_state(incremental_state, "ring")
        if ring is None:
            ring = self.new_ring(self.memory_storage)
            self.set_incremental_state(incremental_state, "ring", ring)
        new_tokens = prev_output_tokens[:, ring.position :]
        x_BTD = self.embed(new_tokens, ring.position)
        y_BTD = torch.stack([self.run_step(x_BD, ring) for x_BD in x_BTD.unbind(1)], 1)
        return y_BTD, {"attn": None}

    def reorder_incremental_state(self, incremental_state, new_order):
        ring = self.get_incremental_state(incremental_state, "ring")
        if ring is not None:
            ring.reorder(new_order)

    def embed(self, tokens, start: int):
        """[B, T] tokens at the positions from ``start`` on to [B, T, D]."""
        x_BTD = self.embed_tokens(tokens) * self.embed_scale
        if self.embed_positions is not None:
            first = self.dictionary.pad() + 1 + start
            x_BTD = x_BTD + self.embed_positions.weight[first : first + tokens.shape[1]]
        elif self.absolute_positions:
            x_BTD = x_BTD + sinusoidal_positions(start, tokens.shape[1], x_BTD[0, 0])
        return dropout(x_BTD, self.draw(self.options.embedding_dropout, x_BTD.shape, x_BTD))

    def output_layer(self, features, **_):
        """Logits; with an adaptive softmax the features themselves, as in fairseq's decoders."""
        return features if self.adaptive_softmax is not None else self.output_projection(features)

    def max_positions(self) -> int:
        """How long a sample may be: any length, but for learned absolute positions."""
        return self.embed_positions.max_positions if self.embed_positions is not None else int(1e9)


class StreamingLanguageModel(FairseqLanguageModel):
    """A language model for endless streams; also trains on independent samples (``--task language_modeling``)."""

    decoder_class = None

    @classmethod
    def build_model(cls, cfg, task):
        if getattr(cfg, "decoder_layers_to_keep", None):
            cfg.decoder_layers = len(kept_layers(cfg))
        absolute = getattr(cfg, "relative_positions", "") == "none"
        if absolute and cfg.decoder_learned_pos and getattr(task, "endless_streams", False):
            raise UserError(
                "--decoder-learned-pos: a learned table cannot reach the end of a stream; leave it out "
                "(fixed sinusoids), or use --relative-positions key"
            )
        if cfg.adaptive_softmax_cutoff:
            require_lm_loss(task, "--adaptive-softmax-cutoff")
        if getattr(cfg, "adaptive_span", False) and cfg.adaptive_span_loss > 0:
            require_lm_loss(task, "--adaptive-span-loss")
        model = cls(cls.decoder_class(cfg, task.source_dictionary, task.target_dictionary))
        if hasattr(cfg, "init_from_transformer"):
            initialise_if_asked(model, cfg)
        return model

    def clamp_spans(self) -> None:
        if getattr(self.decoder.options, "adaptive_span", False):
            self.decoder.clamp_spans()

    def span_parameters(self):
        """The z of adaptive spans, of which optimizers may keep copies."""
        return [parameter for name, parameter in self.named_parameters() if name.endswith("adaptive_span.z")]

    def set_num_updates(self, num_updates):
        """fairseq calls this before each update: spans that the one before brought out of [0, 1] go back."""
        super().set_num_updates(num_updates)
        self.clamp_spans()

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """fairseq's hub interface, with ``sample`` and ``score``; byte models read and write plain text.

        model = FeedbackTransformerLanguageModel.from_pretrained("checkpoints", "checkpoint_best.pt", "data-bin")
        model.sample("def main(", sampling=True, sampling_topk=10, max_len_b=200)
        """
        import fb_fairseq.tasks  # noqa: F401  the checkpoint's task; models themselves know nothing of tasks

        hub = super().from_pretrained(*args, **kwargs)
        if hub.bpe is None and getattr(hub.task, "byte_data", False):
            hub.bpe = build_bpe("byte_codec")
        return hub

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        check_dictionary(state_dict, "decoder", self.decoder.dictionary)
        prune_memory(self.decoder, state_dict, kept_layers(model_cfg))
        return super().load_state_dict(state_dict, strict, model_cfg, args)


def require_lm_loss(task, option_name: str) -> None:
    """Have the task refuse criterions that would leave this option out."""
    build = getattr(task, "build_criterion", None)

    def build_criterion(cfg, *args, **kwargs):
        name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
        if name != "lm_loss":
            raise UserError(f"--criterion {name} does not do {option_name} justice; use --criterion lm_loss")
        return build(cfg, *args, **kwargs)

    if build is not None:
        task.build_criterion = build_criterion
