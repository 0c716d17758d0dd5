"""Readings of given numbers, the pictures that the page shows of them, and the page's parts."""

from types import SimpleNamespace

import torch
from torch import Tensor

from fb_fairseq.byte_codec import SYMBOLS
from fb_fairseq.commands.explore import attention, predictions, text, weights
from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, SPECIAL
from tests.models.language_models import AllAttentionLM, both

LAYERS, HEADS = 2, 2


def model_of(vocabulary: Vocabulary, span: int, persistent: int = 0, labels: bool = False):
    """What pictures ask of a model."""
    options = SimpleNamespace(persistent_memory_size=persistent, persistent_memory_variant="all-attn")
    stack = SimpleNamespace(reaches=lambda: [2, span], options=options)
    return SimpleNamespace(
        vocabulary=vocabulary, stack=stack, labels=labels, device="cpu", log_probs=lambda features: features
    )


class Given(Reading):
    """A reading whose attention, memory and probabilities are given.

    Args:
        model: see ``model_of``.
        tokens: what is read after ``</s>``.
        vectors: of the memory: their number and length.
    """

    def __init__(self, model, tokens: list[int], vectors: tuple[int, int] = (1, 3)):
        self.model = model
        self.tokens = [EOS, *tokens]
        self.bits = [0.0, *(0.75 * t for t in range(1, len(self.tokens)))]
        self.before = []
        steps = len(self.tokens)
        self._attention = [self._shares(step) for step in range(steps)]
        numbers = torch.arange(vectors[0] * vectors[1]).reshape(vectors) - 2.0
        self._memory = [(t + 1) * numbers for t in range(steps)]
        number = len(model.vocabulary)
        ranks = [(7 * torch.arange(number) + step) % number for step in range(steps)]  # no two of a step are equal
        self._features = [torch.log_softmax(-0.31 * rank, 0) for rank in ranks]

    def _shares(self, step: int) -> Tensor:
        """[L, H, span], nearest first: the halves, thirds, … of what is left; persistent vectors take a part."""
        distances = torch.arange(max(self.model.stack.reaches())).clamp(max=max(step - 1, 0))
        parts = 2.03 + torch.arange(LAYERS * HEADS).reshape(LAYERS, HEADS, 1)  # (no result lies between two roundings)
        shares = parts ** -(distances + 1.0) * (parts - 1)
        return 0.9 * shares if self.model.stack.options.persistent_memory_size else shares


def words(number: int) -> Vocabulary:
    """Special symbols, and so many words, one of them HTML, and one long."""
    return Vocabulary([*SPECIAL, "<b>&", "a-long-word", *(f"w{i}" for i in range(number - 2))])


def tracker() -> Given:
    """A tracker of the permutations of three, in a text that has changed; of its products, one is wrong."""
    symbols = ["123", "132", "213", "231", "312", "321"]
    model = model_of(Vocabulary([*SPECIAL, *symbols]), span=5, labels=True)
    names = [*SPECIAL, *symbols]
    model.dictionaries = {"source": names, "target": names}
    reading = Given(model, [names.index(name) for name in ("213", "312", "312", "132")])
    said = ["213", "321", "123", "<unk>"]
    for step, name in enumerate(said, 1):
        reading._features[step] = torch.eye(len(names))[names.index(name)]
    reading.before = ["213", "321", "132"]
    return reading


def mixture(rows: list[list[float]], learned: bool | None) -> str:
    """The picture of layers' weights. ``learned``: whether the memory has any that are; None: there is no memory."""
    stack = SimpleNamespace(reaches=lambda: [1], loop_weights=lambda *_: SimpleNamespace(mix_KA=torch.tensor(rows)))
    if learned is not None:
        stack.memory = SimpleNamespace(layer_weights=[] if learned else None)
    return weights.layer_weights(SimpleNamespace(stack=stack, device="cpu"))


def pictures() -> dict[str, str]:
    """The pictures, by a name."""
    few = Given(model_of(words(8), span=5), [4, 5, 6, 7, 8, 9, 10])
    per_layer = Given(model_of(words(8), span=5), [4, 5, 6, 7], vectors=(2, 4))
    all_bytes = model_of(Vocabulary([*SPECIAL, *SYMBOLS]), span=25, persistent=8)
    code = Given(all_bytes, all_bytes.vocabulary.encode("if x:\n\té <b>&\\ " + "ab" * 6), vectors=(1, 2))
    old = Given(model_of(words(2), span=60, persistent=2), [4, 5, EOS] * 20)
    no_vectors = Given(model_of(words(2), span=1), [4, 5], vectors=(1, 2))
    no_vectors._memory = [0 * vector for vector in no_vectors._memory]
    shown = attention.attention_and_memory
    return {
        "attention: the first step": shown(few, 0, True),
        "attention: one step before": shown(few, 1, False),
        "attention: some": shown(few, 3, True),
        "attention: full": shown(few, 7, False),
        "attention: the second layer's memory": shown(per_layer, 4, False, memory=2),
        "attention: long vectors": shown(Given(few.model, [], vectors=(1, 65)), 0, False),
        "attention: of bytes": shown(code, len(code) - 1, False),
        "attention: older": shown(old, 55, True),
        "attention: an empty memory": shown(no_vectors, 2, False),
        "next: a word follows": predictions.next_token(few, 3, 1.0, 4),
        "next: the end of the text": predictions.next_token(few, 7, 0.5, 0),
        "next: few symbols": predictions.next_token(no_vectors, 1, 1.0, 2),
        "next: bytes": predictions.next_token(code, 4, 1.0, 0),
        "surprise: nothing read": text.surprise(Given(few.model, []), 0),
        "surprise: words": text.surprise(few, 2),
        "surprise: lines": text.surprise(old, 0),
        "surprise: bytes": text.surprise(code, 5),
        "products": text.products(tracker(), 2),
        "products: nothing read": text.products(Given(tracker().model, []), 0),
        "weights: learned": mixture([[0.25, 0.7, 0.05]], True),
        "weights: not learned": mixture([[0.5, 0.5, 0.0]], False),
        "weights: no memory": mixture([[1.0, 0.0]], None),
        "weights: of each layer": mixture([[1.0, 0.0, 0.0], [0.0, 0.0995, 0.9005]], True),
    }


ATTRIBUTES = (
    "label value info elem_id visible scale min_width lines max_lines variant minimum maximum step choices container "
    "padding equal_height"
).split()


def pages() -> dict[str, str]:
    """The parts of the page of each kind of model, and what calls what."""
    from fb_fairseq.commands.explore.page import build_page

    models = {
        "words": both()[0],
        "all-attention": both(AllAttentionLM)[0],
        "per layer": both(memory_composition="same")[0],
    }
    texts = {}
    for name, model in models.items():
        page = build_page(model, 30)
        lines = []
        for block in page.blocks.values():
            found = {key: getattr(block, key) for key in ATTRIBUTES if getattr(block, key, None) is not None}
            if type(block).__name__ == "HTML":
                found["value"] = len(str(found.pop("value", "")).split(">"))  # (see ``pictures``)
            lines.append(f"{type(block).__name__} {found}")
        for function in page.fns.values():
            parts = [[str(block._id) for block in side] for side in (function.inputs, function.outputs)]
            lines.append(f"{function.name}: {len(parts[0])} in, {len(parts[1])} out, {function.show_progress}")
        texts[name] = "\n".join(lines)
    return texts
