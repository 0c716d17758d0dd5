"""The task of language modelling on streams: whole models, with embeddings and output layer."""

import argparse
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import Tensor

from fb_fairseq.models.architectures import TRANSFORMERS
from fb_fairseq.models.language_model import LanguageModelDecoder
from fb_fairseq.models.language_models import (
    FeedbackTransformerLanguageModel,
    FeedbackTransformerLMConfig,
    RelativeTransformerLanguageModel,
    RelativeTransformerLMConfig,
)
from fb_fairseq.modules.adaptive_losses import adaptive_guess, adaptive_losses
from fb_fairseq.papers.benchmark.random_models import MODELS, dictionary, random_words
from fb_fairseq.papers.benchmark.tasks import TRANSFORMER, Task
from fb_fairseq.papers.benchmark.work import Work, repeated


class LanguageModelling(Task):
    """Blocks of streams in training, the most probable next word in inference, both with a full memory.

    ``sizes``: the model's ``options``; the number of words (``vocabulary``); the steps of a training block (``block``);
    how many steps of inference are timed at once (``steps``); and the number of streams (``batch``).
    """

    name = "language modelling"
    full = dict(options=TRANSFORMERS["wikitext103_large"], vocabulary=267_735, block=256, steps=64, batch=16)
    small = dict(
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

    @cached_property
    def words(self) -> Dictionary:
        """The words."""
        return dictionary(self.sizes.vocabulary)

    def decoder(self, kind: str) -> LanguageModelDecoder:
        """A decoder with random parameters."""
        options = {**self.sizes.options, "tokens_per_sample": self.sizes.block, **MODELS[kind].options}
        if kind == TRANSFORMER:
            model = RelativeTransformerLanguageModel
            cfg = RelativeTransformerLMConfig(**options)
        else:
            model = FeedbackTransformerLanguageModel
            cfg = FeedbackTransformerLMConfig(**options)
        task = argparse.Namespace(source_dictionary=self.words, target_dictionary=self.words)
        return model.build_model(cfg, task).to(self.device).decoder

    def training(self, kind, batch):
        decoder = self.decoder(kind).train()
        block = self.sizes.block
        words_BT, targets_BT = (random_words(self.words, batch, block, device=self.device) for _ in range(2))
        state = None

        def step() -> None:
            nonlocal state
            decoder.zero_grad()
            x_TBD = decoder.embed(words_BT, 0).transpose(0, 1)
            y_TBD, state = decoder.stack.run_block(x_TBD, state)
            total_loss(decoder, y_TBD.transpose(0, 1), targets_BT).backward()

        blocks = -(-self.sizes.options["attention_span"] // block)
        return Work(repeated(step, self.device, blocks), step, batch * block)

    def inference(self, kind, batch):
        decoder = self.decoder(kind).eval()
        words_B = random_words(self.words, batch, device=self.device)
        ring = decoder.stack.new_ring()
        softmax = decoder.adaptive_softmax

        @torch.no_grad()
        def decode(steps: int = 1) -> None:
            nonlocal words_B
            for _ in range(steps):
                x_BD = decoder.embed(words_B[:, None], ring.position)[:, 0]
                y_BD = decoder.stack.run_step(x_BD, ring)
                words_B = adaptive_guess(softmax, y_BD) if softmax else decoder.output_projection(y_BD).argmax(-1)

        prepare = repeated(decode, self.device, self.sizes.options["attention_span"])
        return Work(prepare, partial(decode, self.sizes.steps), batch * self.sizes.steps, state=ring.nbytes)


def total_loss(decoder: LanguageModelDecoder, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """The sum of the targets' negative log-likelihoods."""
    if decoder.adaptive_softmax is None:
        logits_BTV = decoder.output_projection(features_BTD)
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")
    counted_BT = torch.ones_like(targets_BT, dtype=torch.bool)
    return adaptive_losses(decoder.adaptive_softmax, features_BTD, targets_BT, counted_BT, training=True)[0].sum()
