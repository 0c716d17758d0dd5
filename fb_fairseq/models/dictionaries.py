"""The dictionaries of a model that was read from a checkpoint of fairseq."""

import os

from fb_fairseq.checksums import check_dictionaries, dictionary_checksums
from fb_fairseq.models.layers import vocabulary_size
from fb_fairseq.trained_model import TrainedModel


def read_dictionaries(trained: TrainedModel, given: str | None = None) -> None:
    """Add the dictionaries of its training to a model that was read from a checkpoint.

    ``given``: the folder that they are in, or the only one's file; None: that of the training data, or the checkpoint's
    own.
    """
    from fairseq.data import Dictionary

    data = str(trained.task.get("data") or "").split(":")[0]
    if trained.translates:
        find_languages(trained, data)
    beside = os.path.dirname(os.path.abspath(trained.path))
    folders = [given] if given else [data or beside, beside]
    names = trained.dictionary_names()
    for name, kind in zip(names, ("source", "target")):
        candidates = [os.path.join(folder, name) for folder in folders]
        if given and len(names) == 1:
            candidates.append(given)
        path = next((candidate for candidate in candidates if os.path.isfile(candidate)), None)
        if path is None:
            raise trained.error(f"{candidates[0]} is missing; give the folder of its training data, with {name}")
        found = Dictionary.load(path)
        size = embedded_symbols(trained, kind)
        if size and len(found) != size:
            raise trained.error(f"has {size} symbols, {path} {len(found)}; give the dictionary of its training")
        check_dictionaries(trained.path, trained.dictionaries, dictionary_checksums({kind: found}))
        trained.symbols[name] = found.symbols


def find_languages(trained: TrainedModel, data: str) -> None:
    """Add the languages that fairseq-train found in the data folder, unless it was told them."""
    from fairseq.data.data_utils import infer_language_pair

    if os.path.isdir(data):
        for side, found in zip(("source_lang", "target_lang"), infer_language_pair(data)):
            trained.task[side] = trained.task.get(side) or found
    if not (trained.task.get("source_lang") and trained.task.get("target_lang")):
        raise trained.error(
            f"does not say its languages, nor does its data folder {data}; give --source-lang and --target-lang"
        )


def embedded_symbols(trained: TrainedModel, kind: str) -> int | None:
    """The number of symbols that a model's embeddings are for; None for labels, which have none.

    Args:
        trained: the model.
        kind: of symbols: "source", also those of a language model, or "target".
    """
    if trained.translates:
        return vocabulary_size(trained.parameters, f"{'encoder' if kind == 'source' else 'decoder'}.embed_tokens.")
    return vocabulary_size(trained.parameters, "decoder.embed_tokens.") if kind == "source" else None
