"""The tasks that need fairseq: language modelling on streams, of whole models with embeddings and output layer; and
translation of random sentences, with fairseq's encoder and beam search.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fb_fairseq.models.architectures import (
    TRANSFORMERS,
    FeedbackTransformerLanguageModel,
    FeedbackTransformerLMConfig,
    RelativeTransformerLanguageModel,
    RelativeTransformerLMConfig,
)
from fb_fairseq.models.language_model import LanguageModelDecoder
from fb_fairseq.modules.adaptive_losses import adaptive_guess, adaptive_losses
from fb_fairseq.papers.benchmark.measure import Work, repeated
from fb_fairseq.papers.benchmark.random_models import MODELS, dictionary, random_model, state_bytes
from fb_fairseq.papers.benchmark.tasks import PER_LAYER, SHARED, TRANSFORMER, Task

KINDS = {TRANSFORMER: "vanilla", SHARED: "feedback, shared", PER_LAYER: "feedback, per-layer"}  # of random_models


class LanguageModelling(Task):
    """Blocks of streams in training, the most probable next word in inference, both with a full memory.

    ``FULL`` and ``SMALL``: the ``preset``, a name in ``TRANSFORMERS`` or empty; ``options`` beyond it; the number of
    words (``vocabulary``); the steps of a training block (``block``); how many steps of inference are timed at once
    (``steps``); and the number of streams (``batch``).
    """

    name = "language modelling"
    FULL = dict(preset="wikitext103_large", options={}, vocabulary=267_735, block=256, steps=64, batch=16)
    SMALL = dict(
        preset="",
        options=dict(
            decoder_layers=4,
            decoder_embed_dim=128,
            decoder_ffn_embed_dim=512,
            decoder_attention_heads=4,
            decoder_normalize_before=True,
            attention_span=64,
            dropout=0.1,
            attention_dropout=0.1,
        ),
        vocabulary=2000,
        block=32,
        steps=16,
        batch=8,
    )

    def __init__(self, sizes: Mapping[str, Any], device: str):
        super().__init__(sizes, device)
        self.words = dictionary(self.sizes.vocabulary)
        preset = TRANSFORMERS.get(self.sizes.preset, {})
        self.options = {**preset, **self.sizes.options, "tokens_per_sample": self.sizes.block}

    def decoder(self, kind: str) -> LanguageModelDecoder:
        """A decoder with random parameters."""
        if kind == TRANSFORMER:
            model = RelativeTransformerLanguageModel
            cfg = RelativeTransformerLMConfig(**self.options)
        else:
            cfg = FeedbackTransformerLMConfig(**self.options, **MODELS[KINDS[kind]].options)
            model = FeedbackTransformerLanguageModel
        task = argparse.Namespace(source_dictionary=self.words, target_dictionary=self.words)
        return model.build_model(cfg, task).to(self.device).decoder

    def training(self, kind, batch):
        decoder = self.decoder(kind).train()
        block = self.sizes.block
        words_BT, targets_BT = (self.random_words(batch, block) for _ in range(2))
        state = None

        def step() -> None:
            nonlocal state
            decoder.zero_grad(set_to_none=True)
            x_TBD = decoder.embed(words_BT, 0).transpose(0, 1)
            y_TBD, state = decoder.stack.run_block(x_TBD, state)
            total_loss(decoder, y_TBD.transpose(0, 1), targets_BT).backward()

        blocks = -(-self.options["attention_span"] // block)
        return Work(repeated(step, self.device, blocks), step, batch * block)

    def inference(self, kind, batch):
        decoder = self.decoder(kind).eval()
        words_B = self.random_words(batch, 1)[:, 0]
        ring = decoder.stack.new_ring()
        softmax = decoder.adaptive_softmax

        @torch.no_grad()
        def decode(steps: int = 1) -> None:
            nonlocal words_B
            for _ in range(steps):
                x_BD = decoder.embed(words_B[:, None], ring.position)[:, 0]
                y_BD = decoder.stack.run_step(x_BD, ring)
                words_B = adaptive_guess(softmax, y_BD) if softmax else decoder.output_projection(y_BD).argmax(-1)

        prepare = repeated(decode, self.device, self.options["attention_span"])
        return Work(prepare, partial(decode, self.sizes.steps), batch * self.sizes.steps, state=ring.nbytes)

    def random_words(self, batch: int, steps: int) -> Tensor:
        """Words [B, T], without the special symbols."""
        return torch.randint(self.words.nspecial, len(self.words), (batch, steps), device=self.device)


def total_loss(decoder: LanguageModelDecoder, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """The sum of the targets' negative log-likelihoods."""
    if decoder.adaptive_softmax is None:
        logits_BTV = decoder.output_projection(features_BTD)
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")
    counted_BT = torch.ones_like(targets_BT, dtype=torch.bool)
    return adaptive_losses(decoder.adaptive_softmax, features_BTD, targets_BT, counted_BT, training=True)[0].sum()


class Translation(Task):
    """Batches of sentences of equal length, ``words``. In inference all outputs have the length of the sources."""

    name = "translation"
    FULL = dict(
        encoder_layers=6,
        layers=2,
        embed_dim=1024,
        ffn_dim=4096,
        heads=16,
        vocabulary=32_768,
        words=25,
        beam=5,
        batch=128,
    )
    SMALL = {**FULL, "embed_dim": 128, "ffn_dim": 256, "heads": 4, "vocabulary": 2000, "words": 16, "batch": 8}

    def __init__(self, sizes: Mapping[str, Any], device: str):
        super().__init__(sizes, device)
        self.words = dictionary(self.sizes.vocabulary)

    def model(self, kind: str) -> torch.nn.Module:
        """A model with random parameters."""
        args = argparse.Namespace(**vars(self.sizes), device=self.device)
        options = {"encoder_layers": self.sizes.encoder_layers}
        return random_model(MODELS[KINDS[kind]], self.sizes.layers, args, self.words, **options)

    def training(self, kind, batch):
        model = self.model(kind).train()
        source = self.sentences(batch)
        target = self.sentences(batch)
        lengths = torch.full((batch,), self.sizes.words, device=self.device)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            logits, _ = model(source, lengths, target)
            F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()

        return Work(repeated(step, self.device, 1), step, batch * self.sizes.words)

    def inference(self, kind, batch):
        words = self.sizes.words
        search = dict(beam_size=self.sizes.beam, max_len_a=0)
        model = self.model(kind).eval()
        generator = SequenceGenerator([model], self.words, max_len_b=words, min_len=words, **search).to(self.device)
        lengths = torch.full((batch,), words, device=self.device)
        sample = {"net_input": {"src_tokens": self.sentences(batch), "src_lengths": lengths}}

        def translate() -> None:
            with torch.no_grad():
                generator.generate([], sample)

        return Work(repeated(translate, self.device, 1), translate, batch * words)

    def state_bytes(self, kind):  # a stream is a hypothesis
        with torch.no_grad():
            return state_bytes(self.model(kind).eval(), self.sizes.words, self.device, self.words)

    def sentences(self, batch: int) -> Tensor:
        """Random words [B, T]."""
        return torch.randint(self.words.nspecial, len(self.words), (batch, self.sizes.words), device=self.device)
