"""Base classes of the language models: configuration, decoder, model."""

import os
from argparse import SUPPRESS
from typing import Optional

import torch
from fairseq.data.encoders import build_bpe
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from fairseq.tasks import import_tasks
from omegaconf import II

import fb_fairseq
from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError
from fb_fairseq.models.initialisation import InitialisationOptions, initialise_if_asked
from fb_fairseq.models.layers import check_dictionary, word_layers
from fb_fairseq.models.log_probs import DecodesLogProbs
from fb_fairseq.models.master_copies import clamp_master_copies
from fb_fairseq.models.option_fields import accept_former_names, described, make_options, with_options
from fb_fairseq.models.pruning import kept_composition, kept_layers, prune
from fb_fairseq.modules.interface import Stack
from fb_fairseq.modules.language_model import TextModel
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.ops.feedback.ring import STORAGES
from fb_fairseq.ops.threads import keep_threads_for_loops
from fb_fairseq.streams.state import CarriesMemory


@with_options(
    described(
        TransformerOptions, "dropout", "embedding_dropout", "output_dropout", "decoder_layers", "decoder_embed_dim"
    ),
    described(WordOptions),
)
class LanguageModelConfig(FairseqDataclass):
    """Options of every language model here. Those that fairseq has too keep fairseq's names."""

    resolved_architecture: str = option("", SUPPRESS)  # set by named architectures: whose values these are
    tokens_per_sample: int = II("task.tokens_per_sample")


@with_options(
    described(
        TransformerOptions,
        "attention_dropout",
        "decoder_attention_heads",
        "decoder_head_dim",
        "decoder_normalize_before",
        "no_decoder_final_norm",
        "attention_span",
        "adaptive_span",
        "adaptive_span_loss",
        "adaptive_span_ramp",
        "adaptive_span_init",
        "relative_positions",
        "checkpoint_activations",
        "decoder_layerdrop",
    )
)
class AttentionLMConfig(LanguageModelConfig):
    """Options of the models with attention."""

    memory_storage: ChoiceEnum(list(STORAGES)) = option(
        "keys-values",
        "what decoding stores for each step: keys and values (a KV cache), or only the vectors that they are projected "
        "from (less memory, more time)",
    )
    decoder_layers_to_keep: Optional[str] = option(None, "which layers to *keep* when pruning, for example 0,2,5")  # noqa: UP045


@with_options(
    described(TransformerOptions, "activation_fn", "activation_dropout", "decoder_ffn_embed_dim"),
    described(InitialisationOptions),
)
class TransformerLMConfig(AttentionLMConfig):
    """Options of the models with feed-forward sublayers, which can start from a vanilla Transformer's parameters."""


class LanguageModelDecoder(DecodesLogProbs, TextModel, FairseqIncrementalDecoder):
    """Embedding, a stack of layers, and the output layer.

    Args:
        cfg: the model's options.
        stack: the layers.
        dictionary: that of the inputs.
        output_dictionary: the dictionary of the targets, if it is another one.
    """

    def __init__(self, cfg: LanguageModelConfig, stack: Stack, dictionary, output_dictionary=None):
        super().__init__(dictionary)
        self.add(stack, word_layers(cfg, dictionary, output_dictionary or dictionary))
        self.memory_storage = str(getattr(cfg, "memory_storage", STORAGES[0]))
        self.absolute_positions = str(getattr(cfg, "relative_positions", "")) == "none"

    @property
    def options(self):
        """The stack's options."""
        return self.stack.options

    def forward(
        self, prev_output_tokens, encoder_out=None, incremental_state=None, features_only=False, stream=None, **_
    ):
        """Predict the next token at each position.

        Args:
            prev_output_tokens: the tokens so far [B, T]; padding, if any, on the right.
            features_only: return features instead of logits.
            incremental_state (dict, optional): decoding; only tokens that are new since the last call are run.
            stream (fb_fairseq.streams.state.StateHandle, optional): reads and writes the streams' state; without it
                each row is an independent sample.

        Returns:
            Logits [B, T, V], or with ``features_only`` features [B, T, D] (in decoding, of the new tokens only); and a
            dict.
        """
        if incremental_state is not None:
            features, extra = self.extract_features_step_by_step(prev_output_tokens, incremental_state)
        else:
            features, extra = self.extract_features(prev_output_tokens, stream=stream)
        return self.output(features, extra, incremental_state, features_only)

    def extract_features(self, prev_output_tokens, encoder_out=None, stream=None, **_):
        """Features [B, T, D] of a block, and a dict: ``state`` after it, and what the stack reports for ``lm_loss``
        (``logged``, ``span_penalty``).
        """
        state = stream.read() if stream is not None else None
        x_TBD = self.embed(prev_output_tokens, stream.offset if stream is not None else 0).transpose(0, 1)
        y_TBD, state = self.stack.run_block(x_TBD, state)
        if stream is not None:
            stream.write(state, len(x_TBD))
        report = self.stack.report()
        extra = {"attn": None, "state": state, "logged": report.logged, "span_penalty": report.penalty}
        return y_TBD.transpose(0, 1), extra

    def extract_features_step_by_step(self, prev_output_tokens, incremental_state):
        """Features [B, t, D] of the t tokens that the memory in ``incremental_state`` has not seen yet."""
        ring = self.get_incremental_state(incremental_state, "ring")
        if ring is None:
            ring = self.stack.new_ring(self.memory_storage)
            self.set_incremental_state(incremental_state, "ring", ring)
        x_BTD = self.embed(prev_output_tokens[:, ring.position :], ring.position)
        y_BTD = torch.stack([self.stack.run_step(x_BD, ring) for x_BD in x_BTD.unbind(1)], 1)
        return y_BTD, {"attn": None}

    def reorder_incremental_state(self, incremental_state, new_order):
        """Take the rows in another order (beam search)."""
        ring = self.get_incremental_state(incremental_state, "ring")
        if ring is not None:
            ring.reorder(new_order)

    def output_layer(self, features, **_):
        """Logits; with an adaptive softmax the features themselves, as in fairseq's decoders."""
        return features if self.adaptive_softmax is not None else self.output_projection(features)

    def max_positions(self) -> int:
        """The longest sample: of any length."""
        return int(1e9)


class StreamingLanguageModel(CarriesMemory, FairseqLanguageModel):
    """A language model for endless streams. It also trains on independent samples (``--task language_modeling``).

    Attributes:
        stack_class, options_class: its stack of layers, and that stack's options.
    """

    stack_class: type[Stack]
    options_class: type = TransformerOptions
    _threads_chosen = False

    @classmethod
    def add_args(cls, parser):
        """Add the options of the configuration, and one that takes back what a named architecture sets."""
        super().add_args(parser)
        accept_former_names(parser)
        if cls.options_class is TransformerOptions:
            parser.add_argument(
                "--no-decoder-normalize-before",
                dest="decoder_normalize_before",
                action="store_false",
                default=SUPPRESS,
                help="apply layernorm after each decoder block (post-norm), where the architecture is pre-norm",
            )

    @classmethod
    def build_model(cls, cfg, task):
        """Build a model from a configuration, with the layers that pruning keeps; with ``--init-from-transformer`` its
        parameters are those of a checkpoint.
        """
        layers = len(kept_layers(cfg)) or cfg.decoder_layers
        options = make_options(cls.options_class, cfg, decoder_layers=layers, memory_composition=kept_composition(cfg))
        stack = cls.stack_class(options)
        model = cls(LanguageModelDecoder(cfg, stack, task.source_dictionary, task.target_dictionary))
        if hasattr(cfg, "init_from_transformer"):
            initialise_if_asked(model, cfg)
        return model

    def get_targets(self, sample, net_output):
        """The targets, for fairseq's own criterions in training: not those that would leave out what ``lm_loss`` adds
        for this model.
        """
        ignored = "--adaptive-softmax-cutoff" if self.decoder.adaptive_softmax is not None else ""
        ignored = "--adaptive-span-loss" if net_output[1].get("span_penalty") is not None else ignored
        if self.training and ignored:
            raise UserError(f"--criterion: another one than lm_loss ignores {ignored}; use --criterion lm_loss")
        return super().get_targets(sample, net_output)

    def before_train_step(self, sample) -> None:
        """Before the first training step on a CPU, choose torch's number of threads for batches of this size, for the
        whole process.
        """
        tokens_BT = sample["net_input"]["src_tokens"]
        if self._threads_chosen or not self.decoder.stack.sequential or tokens_BT.device.type != "cpu":
            return
        self._threads_chosen = True
        largest_matrix = max(p.numel() for p in self.parameters() if p.dim() == 2)
        keep_threads_for_loops(2 * tokens_BT.numel() * largest_matrix)

    def after_optimizer_step(self, optimizer) -> None:
        """Bring adaptive spans that the optimizer moved out of [0, 1] back. Every task calls it, fairseq's too (see
        ``fb_fairseq.patches.models``).

        This is the only place that does. Spans start within the bounds, and so whatever follows an update finds them
        there: the next step, validation, checkpoints and runs that resume from these. With ``--fp16`` and ``--bf16``
        the next update starts from the optimizer's fp32 copies, so these are clamped too.

        ``optimizer``: fairseq's.
        """
        clamp_master_copies(optimizer, self.decoder.stack.clamp())

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """fairseq's hub interface, with ``sample`` and ``score``. Byte models read and write plain text::

        model = FeedbackTransformerLanguageModel.from_pretrained("checkpoints", "checkpoint_best.pt", "data-bin")
        model.sample("def main(", sampling=True, sampling_topk=10, max_len_b=200)
        """
        # Register the checkpoint's task, as --user-dir does in fairseq's commands.
        import_tasks(os.path.join(os.path.dirname(fb_fairseq.__file__), "tasks"), "fb_fairseq.tasks")
        hub = super().from_pretrained(*args, **kwargs)
        if hub.bpe is None and getattr(hub.task, "byte_data", False):
            hub.bpe = build_bpe("byte_codec")
        return hub

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a checkpoint's parameters."""
        check_dictionary(state_dict, "decoder", self.decoder.dictionary)
        prune(state_dict, model_cfg)
        return super().load_state_dict(state_dict, strict, model_cfg, args)
