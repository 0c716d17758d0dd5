"""Translation of random sentences by whole models, with fairseq's encoder and beam search. Needs fairseq."""

import argparse

import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator

from fb_fairseq.papers.benchmark.random_models import MODELS, dictionary, random_model, state_bytes
from fb_fairseq.papers.table5.settings import PER_LAYER, SHARED, TRANSFORMER, TranslationSizes
from fb_fairseq.papers.table5.task import Task, Work

KINDS = {TRANSFORMER: "vanilla", SHARED: "feedback, shared", PER_LAYER: "feedback, per-layer"}


class Translation(Task):
    """Batches of sentences of equal length. In inference all outputs have the length of the sources."""

    name = "translation"

    def __init__(self, sizes: TranslationSizes, device: str):
        super().__init__(sizes, device)
        self.words = dictionary(sizes.vocabulary)

    def model(self, kind: str) -> torch.nn.Module:
        """A model with random parameters."""
        args = argparse.Namespace(**self.sizes._asdict(), device=self.device)
        options = {"encoder_layers": self.sizes.encoder_layers}
        return random_model(MODELS[KINDS[kind]], self.sizes.layers, args, self.words, **options)

    def training(self, kind, batch):
        model = self.model(kind).train()
        source, target = self.sentences(batch), self.sentences(batch)
        lengths = torch.full((batch,), self.sizes.words, device=self.device)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            logits, _ = model(source, lengths, target)
            F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()

        return Work(self.repeated(step, 1), step, batch * self.sizes.words)

    def inference(self, kind, batch):
        words, search = self.sizes.words, dict(beam_size=self.sizes.beam, max_len_a=0)
        model = self.model(kind).eval()
        generator = SequenceGenerator([model], self.words, max_len_b=words, min_len=words, **search).to(self.device)
        lengths = torch.full((batch,), words, device=self.device)
        sample = {"net_input": {"src_tokens": self.sentences(batch), "src_lengths": lengths}}

        def translate() -> None:
            with torch.no_grad():
                generator.generate([], sample)

        return Work(self.repeated(translate, 1), translate, batch * words)

    def state_sizes(self):
        return self.sizes.words, self.sizes.layers, self.sizes.embed_dim

    def measured_state_bytes(self, kind):
        """See ``Task``; a stream is a hypothesis."""
        with torch.no_grad():
            return state_bytes(self.model(kind).eval(), self.sizes.words, self.device, self.words)

    def sentences(self, batch: int) -> torch.Tensor:
        """Random words [B, T]."""
        return torch.randint(self.words.nspecial, len(self.words), (batch, self.sizes.words), device=self.device)
