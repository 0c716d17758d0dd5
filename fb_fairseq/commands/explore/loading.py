"""A language model behind one interface, whether a checkpoint of fairseq holds it or the folder of an export.

fairseq and transformers are imported only inside functions, so that either does without the other.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fb_fairseq.commands.explore.text import Vocabulary
from fb_fairseq.commands.plot.models import CHOICE
from fb_fairseq.errors import UserError

if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

ARCHITECTURES = {
    "FeedbackTransformer": "Feedback Transformer",
    "RelativeTransformer": "Transformer",
    "AllAttention": "All-attention network",
}


@dataclass
class ExploredModel:
    """A language model with attention, in evaluation mode.

    Attributes:
        path: the checkpoint or folder.
        decoder: fairseq's or transformers' side of the model: its ``stack`` and output layer.
        embed: embeddings [1, T, D] of tokens [1, T] of which the first has a position.
        vocabulary: its symbols.
        device: where it runs.
        lock: held while the stack is watched, which only one thread may do: windows of the browser have their own.
    """

    path: str
    decoder: Any
    embed: Callable[["Tensor", int], "Tensor"]
    vocabulary: Vocabulary
    device: Any
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stack(self):
        """The model's layers."""
        return self.decoder.stack

    @property
    def kind(self) -> str:
        """The papers' name of such a model."""
        return ARCHITECTURES[type(self.stack).__name__]

    def log_probs(self, features_TD: "Tensor") -> "Tensor":
        """Log-probabilities [T, V] of the next token, of the stack's features."""
        if self.decoder.adaptive_softmax is not None:
            return self.decoder.adaptive_softmax.get_log_prob(features_TD[None], None)[0].float()
        return self.decoder.output_projection(features_TD).float().log_softmax(-1)


def load(path: str, data: str | None = None, cpu: bool = False) -> ExploredModel:
    """Load a language model.

    Args:
        path: a checkpoint, or a folder that ``python -m fb_fairseq export`` has written.
        data: folder with a checkpoint's dictionary; None: that of its training data.
        cpu: use the CPU even if there is a GPU.
    """
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file or folder; give a checkpoint, or the folder of an exported model")
    model = load_exported(path, data, cpu) if os.path.isdir(path) else load_checkpoint(path, data, cpu)
    if type(model.stack).__name__ not in ARCHITECTURES:
        raise UserError(f"{path}: attends to nothing (an LSTM); give {CHOICE}")
    return model


def load_checkpoint(path: str, data: str | None, cpu: bool) -> ExploredModel:
    """A model of a checkpoint; see ``load``."""
    from fb_fairseq.commands.plot.models import load_model

    loaded = load_model("", path, data, cpu)
    if loaded.has_labels:
        raise UserError(f"{path}: was trained with --labels, and predicts no text; use plot --position-accuracy")
    line_ends = not getattr(loaded.task.args, "omit_eos", False)
    vocabulary = Vocabulary(loaded.dictionary.symbols, line_ends=line_ends)
    decoder = loaded.model.decoder
    return ExploredModel(path, decoder, decoder.embed, vocabulary, loaded.device)


def load_exported(path: str, data: str | None, cpu: bool) -> ExploredModel:
    """A model of transformers; see ``load``."""
    import torch

    import fb_fairseq.transformers.installation  # noqa: F401  before transformers is imported
    from fb_fairseq.commands.import_transformers import read_model, read_tokenizer
    from fb_fairseq.transformers.modeling import LanguageModel

    if data is not None:
        raise UserError(f"--data {data}: has no effect, because {path} has its own tokenizer; leave it out")
    model = read_model(path)
    if not isinstance(model, LanguageModel):
        raise UserError(f"{path}: is a translation model; give a language model")
    tokenizer, symbols = read_tokenizer(path, model.config.vocab_size)
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    decoder = model.eval().float().to(device).decoder

    def embed(tokens_BT, start):
        return decoder.embed(decoder.embed_tokens(tokens_BT), start, None)

    return ExploredModel(path, decoder, embed, Vocabulary(symbols, tokenizer), device)
