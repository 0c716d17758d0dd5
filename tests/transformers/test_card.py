"""The model card: what is known stands in it, what is not known is left out."""

import pytest
import yaml
from huggingface_hub import ModelCard

import fb_fairseq.transformers as ft
from fb_fairseq.transformers.card import model_card

FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN = "2002.09402", "1907.01470", "Adaptive Attention Span"
FACTS = {
    "data": "WikiText-103 | tokenised\nas published",
    "license": "mit",
    "language": "en, de",
    "updates": 200_000,
    "valid_bits": 4.5,
    "valid_bpb": 1.0,
    "notes": [("hardware", "a | b")],
}


def card(kind="feedback_transformer_lm", reads="words", facts=FACTS, **options):
    return model_card("someone/a model", ft.CONFIGS[kind](vocab_size=267_744, **options), 44_123_456, reads, facts)


def example(text):
    return text.partition("```python\n")[2].partition("```")[0]


def test_everything_that_is_known():
    text = card(decoder_layers=4, attention_span=512)
    expected = dict(library_name="transformers", pipeline_tag="text-generation", tags=["fb_fairseq"])
    assert yaml.safe_load(text.split("---\n")[1]) == {**expected, "license": "mit", "language": ["en", "de"]}
    assert "target" not in text
    assert text.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert ModelCard(text).data.license == "mit"
    for row in (
        "| architecture | `feedback_transformer_lm` |",
        "| decoder layers | 4 |",
        "| attention span | 512 |",
        "| vocabulary | 267,744 |",
        "| parameters | 44,123,456 |",
        "| data | WikiText-103 \\| tokenised as published |",
        "| updates | 200,000 |",
        "| validation loss | 4.500 bits per token |",
        "| validation loss per byte | 1.000 bits per byte |",
        "| hardware | a \\| b |",
    ):
        assert row in text.splitlines()
    assert 'from_pretrained("someone/a model")' in text and "import fb_fairseq.transformers" in text


def test_what_is_unknown_is_left_out():
    text = card("streaming_lstm_lm", facts={})
    assert not any(word in text for word in ("license", "language", "None", "span", "heads", "updates", "bits", "cite"))


@pytest.mark.parametrize(
    "kind, adaptive, papers",
    [
        ("feedback_transformer_lm", True, [FEEDBACK, ADAPTIVE_SPAN]),
        ("all_attention_lm", False, [ALL_ATTENTION]),
        ("relative_transformer_lm", True, [ADAPTIVE_SPAN]),
        ("relative_transformer_lm", False, []),
    ],
)
def test_papers(kind, adaptive, papers):
    text = card(kind, adaptive_span=adaptive, attention_span=8192)
    citation = text.partition("## Citation")[2]
    assert [paper for paper in (FEEDBACK, ALL_ATTENTION, ADAPTIVE_SPAN) if paper in citation] == papers
    assert ("8192 steps, adaptive" in text) == adaptive and ("| feed-forward width" in text) == (
        kind != "all_attention_lm"
    )


@pytest.mark.parametrize("reads", ["bytes", "words", "subwords"])
def test_the_example_is_a_program(reads):
    for text in (card(reads=reads), card(reads=reads, labels=True)):
        compile(example(text), "README.md", "exec")


def test_a_translation_model():
    config = ft.FeedbackDecoderConfig(source_lang="de", target_lang="en")
    text = model_card("model", config, 1000, "subwords", {"valid_bleu": 30.0}, target_tokenizer=True)
    assert "pipeline_tag: translation" in text and 'subfolder="target"' in example(text)
    assert "| source and target | de → en |" in text and "| validation BLEU | 30.00 |" in text and FEEDBACK in text
