"""The task of translation: random sentences, with fairseq's encoder and beam search."""

import argparse
from functools import cached_property

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fb_fairseq.papers.benchmark.random_models import MODELS, dictionary, random_model, random_words, state_bytes
from fb_fairseq.papers.benchmark.tasks import Task
from fb_fairseq.papers.benchmark.work import Work, repeated


class Translation(Task):
    """Batches of random sentences of equal length. In inference all outputs have the length of the sources.

    ``sizes``: the numbers of layers (``encoder_layers``; ``layers`` of the decoder), ``embed_dim``, ``ffn_dim`` and
    ``heads``; the number of words (``vocabulary``), and of those in a sentence (``length``); the ``beam``; and the
    number of sentences (``batch``).
    """

    name = "translation"
    full = dict(
        encoder_layers=6,
        layers=2,
        embed_dim=1024,
        ffn_dim=4096,
        heads=16,
        vocabulary=32_768,
        length=25,
        beam=5,
        batch=128,
    )
    small = full | dict(embed_dim=128, ffn_dim=256, heads=4, vocabulary=2000, length=16, batch=8)

    @cached_property
    def words(self) -> Dictionary:
        """The words of both languages."""
        return dictionary(self.sizes.vocabulary)

    def model(self, kind: str) -> torch.nn.Module:
        """A model with random parameters."""
        args = argparse.Namespace(**vars(self.sizes), device=self.device)
        options = {"encoder_layers": self.sizes.encoder_layers}
        return random_model(MODELS[kind], self.sizes.layers, args, self.words, **options)

    def training(self, kind, batch):
        model = self.model(kind).train()
        source = self.sentences(batch)
        target = self.sentences(batch)
        lengths = torch.full((batch,), self.sizes.length, device=self.device)

        def step() -> None:
            model.zero_grad()
            logits, _ = model(source, lengths, target)
            F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()

        return Work(repeated(step, self.device, 1), step, batch * self.sizes.length)

    def inference(self, kind, batch):
        length = self.sizes.length
        search = dict(beam_size=self.sizes.beam, max_len_a=0, max_len_b=length, min_len=length)
        model = self.model(kind).eval()
        generator = SequenceGenerator([model], self.words, **search).to(self.device)
        lengths = torch.full((batch,), length, device=self.device)
        sample = {"net_input": {"src_tokens": self.sentences(batch), "src_lengths": lengths}}

        def translate() -> None:
            with torch.no_grad():
                generator.generate([], sample)

        return Work(repeated(translate, self.device, 1), translate, batch * length)

    def state_bytes(self, kind):  # a stream is a hypothesis
        with torch.no_grad():
            return state_bytes(self.model(kind).eval(), self.sizes.length, self.device, self.words)

    def sentences(self, batch: int) -> Tensor:
        """Random words [B, T]."""
        return random_words(self.words, batch, self.sizes.length, device=self.device)
