"""The model card of an exported model: the README.md that the Hugging Face Hub shows."""

import json
from pathlib import Path
from typing import Any

import yaml

from fb_fairseq.transformers.configuration import OptionsConfig

PAPERS = Path(__file__).with_name("papers.bib").read_text(encoding="utf-8")
FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN = PAPERS.strip().split("\n\n")
CARD = """---
{header}---

# {name}

{introduction} Trained with fb_fairseq, a plugin for fairseq.

| | |
|---|---|
{rows}

## Use

{reads}

```python
import fb_fairseq.transformers  # registers the architecture
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({path})
{before}model = {auto}.from_pretrained({path})
inputs = tokenizer({prompt}, return_tensors="pt")
output = {output}
print({tokenizer}.decode(output[0], skip_special_tokens=True))
```
"""
CITATION = "\n## Citation\n\n```bibtex\n{}\n```\n"
INTRODUCTIONS = {
    "feedback_transformer_lm": "A Feedback Transformer ([Fan et al. 2020](https://arxiv.org/abs/2002.09402)): each "
    "step attends to one memory vector per past step, which merges the outputs of all layers.",
    "all_attention_lm": "An all-attention network ([Sukhbaatar et al. 2019](https://arxiv.org/abs/1907.01470)): "
    "persistent vectors, to which every layer attends, take the place of feed-forward layers.",
    "relative_transformer_lm": "A Transformer with relative positions and memory of past steps.",
    "streaming_lstm_lm": "An LSTM.",
    "feedback_decoder": "A Transformer encoder and a decoder with feedback memory ([Fan et al. 2020]"
    "(https://arxiv.org/abs/2002.09402)): each step of the decoder attends to one memory vector per past step, which "
    "merges the outputs of all its layers.",
}
CITED = {
    "feedback_transformer_lm": [FEEDBACK],
    "feedback_decoder": [FEEDBACK],
    "all_attention_lm": [ALL_ATTENTION],
}
READS = {
    "bytes": "The model reads bytes of UTF-8, and so any text.",
    "words": "The model reads words separated by white space. Texts must be tokenised like its training text; unknown "
    "words become `<unk>`.",
    "subwords": "The model reads pieces of words, into which the tokenizer splits them as subword-nmt does. Texts must "
    "be tokenised like its training text.",
}
SIZES = {
    "encoder layers": "encoder_layers",
    "decoder layers": "decoder_layers",
    "width": "decoder_embed_dim",
    "feed-forward width": "decoder_ffn_embed_dim",
    "persistent vectors": "persistent_memory_size",
    "heads": "decoder_attention_heads",
    "attention span": "attention_span",
    "vocabulary": "vocab_size",
}
FIGURES = {
    "validation loss": ("valid_bits", "{:.3f} bits per token"),
    "validation loss per byte": ("valid_bpb", "{:.3f} bits per byte"),
    "validation BLEU": ("valid_bleu", "{:.2f}"),
}


def model_card(
    name: str,
    config: OptionsConfig,
    parameters: int,
    reads: str,
    facts: dict[str, Any],
    *,
    target_tokenizer: bool = False,
    labelled: str = "",
) -> str:
    """The text of README.md.

    Args:
        name: the model's, for the title, and for ``from_pretrained`` in the example.
        config: its configuration.
        parameters: number of them.
        reads: ``bytes``, ``words`` or ``subwords``.
        facts: see ``fb_fairseq.facts``; what is not known is left out.
        target_tokenizer: whether a translation model has a tokenizer for its targets.
        labelled: the text in the example of a model that labels symbols.
    """
    path = json.dumps(name)
    if config.is_encoder_decoder:
        task = "translation"
        auto = "AutoModelForSeq2SeqLM"
        prompt = "a text"
        output = "model.generate(**inputs)"
    elif config.labels:
        task = "token-classification"
        auto = "AutoModelForTokenClassification"
        prompt = labelled
        output = "model(**inputs).logits.argmax(-1)  # the label of each symbol, after that of </s>"
    else:
        task = "text-generation"
        auto = "AutoModelForCausalLM"
        prompt = "def main(" if reads == "bytes" else "the meaning of"
        output = "model.generate(**inputs, max_new_tokens=100, do_sample=True, top_k=10)"
    tokenizer = "tokenizer"
    before = ""
    if target_tokenizer:
        tokenizer = "target_tokenizer"
        before = f'{tokenizer} = AutoTokenizer.from_pretrained({path}, subfolder="target")\n'
    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": task, "tags": ["fb_fairseq"]}
    if "license" in facts:
        header["license"] = facts["license"]
    if "language" in facts:
        header["language"] = [code.strip() for code in facts["language"].split(",")]
    cited = list(CITED.get(config.model_type, ()))
    if getattr(config, "adaptive_span", False):
        cited.append(ADAPTIVE_SPAN)
    card = CARD.format(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        name=name,
        introduction=INTRODUCTIONS[config.model_type],
        rows="\n".join(f"| {title} | {shown(value)} |" for title, value in rows(config, parameters, facts)),
        reads=READS[reads],
        auto=auto,
        path=path,
        before=before,
        prompt=json.dumps(prompt),
        output=output,
        tokenizer=tokenizer,
    )
    return card + (CITATION.format("\n".join(cited)) if cited else "")


def rows(config: OptionsConfig, parameters: int, facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """The rows of the card's table: names, and values that are known.

    Args:
        config: see ``model_card``, as for the others.
        parameters: number of them.
        facts: of the training, and figures.
    """
    sizes = {title: getattr(config, option, None) for title, option in SIZES.items()}
    if config.model_type == "all_attention_lm":
        del sizes["feed-forward width"]
    found = {"architecture": f"`{config.model_type}`", **sizes, "parameters": parameters}
    if config.is_encoder_decoder:
        found["source and target"] = f"{config.source_lang} → {config.target_lang}"
    if getattr(config, "adaptive_span", False):
        found["attention span"] = f"{config.attention_span} steps, adaptive"
    found.update(data=facts.get("data"), updates=facts.get("updates"))
    found.update({title: text.format(facts[name]) for title, (name, text) in FIGURES.items() if name in facts})
    found.update(facts.get("notes", ()))
    return [(title, value) for title, value in found.items() if value]


def shown(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    return " ".join(str(value).split()).replace("|", "\\|")
