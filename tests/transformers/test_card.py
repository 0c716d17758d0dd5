"""The model card: what is known stands in it, what is not known is left out."""

from dataclasses import replace

import pytest
import yaml
from huggingface_hub import ModelCard

from fb_fairseq.transformers.card import CardFacts, model_card

FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN = "2002.09402", "1907.01470", "Adaptive Attention Span"
SIZES = dict(layers=4, width=512, feed_forward=2048, heads=8, span=512, parameters=44_123_456)
TEXT = dict(reads="words", vocabulary=267_744, data="WikiText-103 | tokenised\nas published", language="en")
TRAINED = dict(updates=200_000, valid_bits=4.5, valid_bpb=1.0, license="mit")
KNOWN = CardFacts("someone/feedback-wikitext", "feedback_transformer_lm", **SIZES, **TEXT, **TRAINED)


def front_matter(card):
    """The lines between the dashes, and what follows."""
    before, lines, text = card.split("---\n", 2)
    assert not before
    return lines.splitlines(), text


def test_with_code():
    """The example does without the package."""
    text = model_card(replace(KNOWN, with_code=True))
    assert 'from_pretrained("someone/feedback-wikitext", trust_remote_code=True)' in text
    assert "import fb_fairseq" not in text and "lies beside the model" in text


def test_everything_that_is_known():
    lines, text = front_matter(model_card(KNOWN))
    known = yaml.safe_load("\n".join(lines))
    (model,) = known.pop("model-index")
    expected = dict(library_name="transformers", pipeline_tag="text-generation", license="mit", language=["en"])
    assert known == {**expected, "tags": ["fb_fairseq", "feedback-transformer"]}
    (result,) = model["results"]
    assert model["name"] == KNOWN.name and result["task"] == {"type": "text-generation"}
    assert result["dataset"]["name"] == "WikiText-103 | tokenised as published"
    metrics = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert metrics == {"perplexity": 22.6274, "bits_per_byte": 1.0}
    assert ModelCard(model_card(KNOWN)).data.eval_results[0].dataset_split == "validation"
    for row in (
        "| architecture | `feedback_transformer_lm` |",
        "| layers | 4 |",
        "| attention span | 512 steps |",
        "| parameters | 44,123,456 |",
        "| data | WikiText-103 \\| tokenised as published |",
        "| updates | 200,000 |",
        "| validation loss | 4.500 bits per token |",
        "| validation perplexity | 22.63 per token |",
        "| validation loss per byte | 1.000 bits per byte |",
    ):
        assert row in text.splitlines()
    assert 'from_pretrained("someone/feedback-wikitext")' in text and "import fb_fairseq.transformers" in text
    assert FEEDBACK in text and "None" not in text


def test_what_is_unknown_is_left_out():
    lines, text = front_matter(model_card(CardFacts("name", "feedback_transformer_lm")))
    assert not any(line.startswith(("license", "language")) for line in lines)
    assert text.count("|---|---|") == 1 and "## Training" not in text
    assert not any(word in text for word in ("None", "span", "parameters", "perplexity", "bits"))


@pytest.mark.parametrize(
    "architecture, adaptive, papers",
    [
        ("feedback_transformer_lm_enwik8", True, [FEEDBACK, ADAPTIVE_SPAN]),
        ("all_attention_lm_char_small", False, [ALL_ATTENTION]),
        ("relative_transformer_lm", True, [ADAPTIVE_SPAN]),
        ("streaming_lstm_lm", False, []),
        ("another", False, []),
    ],
)
def test_papers(architecture, adaptive, papers):
    text = model_card(CardFacts("name", architecture, span=8192, adaptive_span=adaptive, reads="bytes", valid_bits=1.0))
    citation = text.partition("## Citation")[2]
    assert [paper for paper in (FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN) if paper in citation] == papers
    assert bool(citation) == bool(papers)
    assert ("8192 steps, adaptive" in text) == adaptive and "perplexity" not in text


def test_example_is_a_program():
    for reads in ("bytes", "words", "subwords", None):
        card = model_card(CardFacts('a "name"', "feedback_transformer_lm", reads=reads))
        compile(card.partition("```python\n")[2].partition("```")[0], "README.md", "exec")


@pytest.mark.parametrize(
    "change,metrics",
    [
        (dict(data=None), None),
        (dict(reads="bytes", valid_bpb=None), None),
        (dict(reads="bytes"), ["bits_per_byte"]),
        (dict(languages="de → en", valid_bits=None, valid_bpb=None, valid_bleu=30.0), ["bleu"]),
    ],
)
def test_results_for_the_hub(change, metrics):
    lines, _ = front_matter(model_card(replace(KNOWN, language="de,en", **change)))
    known = yaml.safe_load("\n".join(lines))
    assert known["language"] == ["de", "en"]
    found = [m["type"] for model in known.get("model-index", []) for r in model["results"] for m in r["metrics"]]
    assert found == (metrics or []) and ("model-index" in known) == bool(metrics)
