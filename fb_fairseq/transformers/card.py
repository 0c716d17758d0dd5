"""The model card of an exported model: the README.md that the Hugging Face Hub shows."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

PAPERS = Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")
FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN = PAPERS.strip().split("\n\n")
TARGET_FOLDER = "target"  # of a translation model's second tokenizer
PROMPTS = {"bytes": "def main(", "words": "the meaning of", "subwords": "the meaning of"}
READS = {
    "bytes": "The model reads bytes of UTF-8, and so any text.",
    "words": "The model reads words separated by white space. Texts must be tokenised like its training text; unknown "
    "words become `<unk>`.",
    "subwords": "The model reads pieces of words, into which the tokenizer splits them as subword-nmt does. Texts must "
    "be tokenised like its training text.",
}


class ModelKind(NamedTuple):
    """The texts of a card that all models of a kind share."""

    tag: str
    introduction: str
    paper: str | None = None  # its citation


KINDS = {  # by the beginning of --arch
    "feedback_transformer": ModelKind(
        "feedback-transformer",
        "A Feedback Transformer ([Fan et al. 2020](https://arxiv.org/abs/2002.09402)): each step attends to one memory "
        "vector per past step, which merges the outputs of all layers.",
        FEEDBACK,
    ),
    "all_attention": ModelKind(
        "all-attention",
        "An all-attention network ([Sukhbaatar et al. 2019](https://arxiv.org/abs/1907.01470)): persistent vectors, to "
        "which every layer attends, take the place of feed-forward layers.",
        ALL_ATTENTION,
    ),
    "relative_transformer": ModelKind("transformer", "A Transformer with relative positions and memory of past steps."),
    "streaming_lstm": ModelKind("lstm", "An LSTM."),
    "feedback_decoder": ModelKind(
        "feedback-transformer",
        "A Transformer encoder and a decoder with feedback memory "
        "([Fan et al. 2020](https://arxiv.org/abs/2002.09402)): each step of the decoder attends to one memory vector "
        "per past step, which merges the outputs of all its layers.",
        FEEDBACK,
    ),
}


@dataclass
class CardFacts:
    """Facts about a model. Everything but the name and the architecture may be None: it is left out."""

    name: str  # the model's, for the title, and for ``from_pretrained`` in the example
    architecture: str  # value of ``--arch``
    languages: str | None = None  # source and target of a translation model, ``de → en``; None: it is a language model
    encoder_layers: int | None = None  # number of its encoder's layers
    layers: int | None = None  # number of layers; of a translation model, the decoder's
    width: int | None = None  # of the embeddings
    feed_forward: int | None = None
    persistent_vectors: int | None = None
    heads: int | None = None
    span: int | None = None  # of the attention, in steps; the maximum if it is adaptive
    adaptive_span: bool = False
    parameters: int | None = None  # number of them
    reads: str | None = None  # ``bytes``, ``words`` or ``subwords``
    vocabulary: int | None = None  # number of symbols
    data: str | None = None  # what the model was trained on, in words
    updates: int | None = None  # number of updates
    valid_bits: float | None = None  # loss on the validation split, in bits per token
    valid_bpb: float | None = None  # the same in bits per byte
    valid_bleu: float | None = None  # BLEU on the validation split
    license: str | None = None  # identifier as on the Hub, such as ``mit``
    language: str | None = None  # code of the text's language, such as ``en``; of several, with commas
    separate_tokenizers: bool = False  # whether a translation model has a tokenizer for targets
    with_code: bool = False  # whether the code that it needs lies beside it
    labels: bool = False  # whether it gives each symbol a label, instead of predicting the next one
    notes: list[tuple[str, str]] = field(default_factory=list)  # further rows on its training: names and texts


def model_card(facts: CardFacts) -> str:
    """The text of README.md."""
    sections = [_front_matter(facts), f"# {facts.name}\n\n{_introduction(facts)}"]
    sections += _table("Model", _sizes(facts)) + _table("Training", _training(facts))
    sections.append(_usage(facts))
    papers = _papers(facts)
    if papers:
        sections.append("## Citation\n\n```bibtex\n" + "\n".join(papers) + "\n```")
    return "\n\n".join(sections) + "\n"


def _front_matter(facts: CardFacts) -> str:
    results = _results(facts)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=_task(facts),
        license=facts.license,
        language=[code.strip() for code in facts.language.split(",")] if facts.language else None,
        tags=["fb_fairseq", *(kind.tag for kind in _kinds(facts))],
        model_name=facts.name if results else None,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---"


def _task(facts: CardFacts) -> str:
    return "translation" if facts.languages else "token-classification" if facts.labels else "text-generation"


def _results(facts: CardFacts) -> list[EvalResult]:
    """Evaluation results as the Hub shows them; they need the name of the data."""
    figures = {
        "perplexity": None if facts.valid_bits is None or facts.reads == "bytes" else 2**facts.valid_bits,
        "bits_per_byte": facts.valid_bpb,
        "bleu": facts.valid_bleu,
    }
    data = " ".join((facts.data or "").split())
    return [
        EvalResult(
            task_type=_task(facts),
            dataset_type=data,
            dataset_name=data,
            dataset_split="validation",
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for metric, value in figures.items()
        if data and value is not None
    ]


def _kinds(facts: CardFacts) -> list[ModelKind]:
    """The kind of the model, or none if the architecture is another."""
    return [kind for beginning, kind in KINDS.items() if facts.architecture.startswith(beginning)]


def _introduction(facts: CardFacts) -> str:
    described = [kind.introduction for kind in _kinds(facts)]
    what = "An encoder-decoder" if facts.languages else "A tagger" if facts.labels else "A language model"
    return " ".join([*described, f"{what} trained with fb_fairseq, a plugin for fairseq."])


def _sizes(facts: CardFacts) -> list[tuple[str, Any]]:
    adaptive = ", adaptive" if facts.adaptive_span else ""
    return [
        ("architecture", f"`{facts.architecture}`"),
        ("source and target", facts.languages),
        ("encoder layers", facts.encoder_layers),
        ("decoder layers" if facts.languages else "layers", facts.layers),
        ("width", facts.width),
        ("feed-forward width", facts.feed_forward),
        ("persistent vectors", facts.persistent_vectors),
        ("heads", facts.heads),
        ("attention span", None if facts.span is None else f"{_shown(facts.span)} steps{adaptive}"),
        ("parameters", facts.parameters),
        ("reads", facts.reads),
        ("vocabulary", facts.vocabulary),
    ]


def _training(facts: CardFacts) -> list[tuple[str, Any]]:
    bits, bytewise = facts.valid_bits, facts.valid_bpb
    return [
        ("data", facts.data),
        ("updates", facts.updates),
        ("validation loss", None if bits is None else f"{bits:.3f} bits per token"),
        ("validation perplexity", None if bits is None or facts.reads == "bytes" else f"{2**bits:.2f} per token"),
        ("validation BLEU", None if facts.valid_bleu is None else f"{facts.valid_bleu:.2f}"),
        ("validation loss per byte", None if bytewise is None else f"{bytewise:.3f} bits per byte"),
        *facts.notes,
    ]


def _shown(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    return " ".join(str(value).split()).replace("|", "\\|")


def _table(title: str, rows: list[tuple[str, Any]]) -> list[str]:
    known = [f"| {name} | {_shown(value)} |" for name, value in rows if value is not None]
    return ["\n".join([f"## {title}\n", "| | |", "|---|---|", *known])] if known else []


def _usage(facts: CardFacts) -> str:
    name, tokenizer = json.dumps(facts.name), "tokenizer"
    prompt = json.dumps(PROMPTS.get(facts.reads or "", "the meaning of"))
    auto, options, more = "AutoModelForCausalLM", "**inputs, max_new_tokens=100, do_sample=True, top_k=10", ""
    if facts.languages:
        auto, options, prompt = "AutoModelForSeq2SeqLM", "**inputs", '"a text to translate"'
    if facts.separate_tokenizers:
        tokenizer = "target_tokenizer"
        more = f'{tokenizer} = AutoTokenizer.from_pretrained({name}, subfolder="{TARGET_FOLDER}")\n'
    generates = f"model.generate({options})"
    if facts.labels:
        auto, prompt = "AutoModelForTokenClassification", '"SYMBOLS"'
        generates = "model(**inputs).logits.argmax(-1)  # the label of each symbol, after that of </s>"
    registers = "" if facts.with_code else "import fb_fairseq.transformers  # registers the architecture\n"
    trust = ", trust_remote_code=True" if facts.with_code else ""
    code = f"""{registers}from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
{more}model = {auto}.from_pretrained({name}{trust})
inputs = tokenizer({prompt}, return_tensors="pt")
output = {generates}
print({tokenizer}.decode(output[0], skip_special_tokens=True))"""
    knows = "Only the package fb_fairseq knows the architecture."
    if facts.with_code:
        knows = "The code lies beside the model."
    text = f"{READS.get(facts.reads or '', '')} {knows}".lstrip()
    return f"## Use\n\n{text}\n\n```python\n{code}\n```"


def _papers(facts: CardFacts) -> list[str]:
    papers = [kind.paper for kind in _kinds(facts) if kind.paper]
    return papers + [ADAPTIVE_SPAN] * facts.adaptive_span
