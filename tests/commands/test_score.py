"""fb-fairseq score: what it reads, and that it counts everything."""

import json

import pytest
import sacrebleu

from fb_fairseq.commands import score
from fb_fairseq.commands.score import main, read_generated, split_compounds
from fb_fairseq.errors import UserError

HYPOTHESES = ["the cat sat on the mat .", "a well-known man has gone home .", "we don 't know ."]
REFERENCES = ["the cat sat on a mat .", "a well-known man went home .", "we do not know ."]
DETOKENISED = ["the cat sat on the mat.", "a well-known man has gone home.", "we don't know."]


def generated(path, numbers=(2, 0, 1)):
    """As fairseq-generate writes: by length, two hypotheses each, one empty."""
    lines = ["some log"]
    for n in numbers:
        lines += [f"S-{n}\tx", f"T-{n}\t{REFERENCES[n]}", f"H-{n}\t-0.1\traw", f"D-{n}\t-0.1\t{HYPOTHESES[n]}"]
        lines += [f"H-{n}\t-0.9\tworse", f"D-{n}\t-0.9\tworse", f"P-{n}\t-0.1 -0.2"]
    path.write_text("\n".join(lines) + "\n")
    return path


def scores(capsys, *arguments):
    main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out)


def test_generated_output(tmp_path, capsys):
    path = generated(tmp_path / "gen")
    assert read_generated(str(path)) == (HYPOTHESES, REFERENCES)
    found = scores(capsys, "--gen", path)
    assert found["sentences"] == 3
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="none", force=True).score
    assert found["tokenized_bleu"] == pytest.approx(expected, abs=0.01)
    references = ["the cat sat on a mat.", "a well-known man went home.", "we do not know."]
    assert found["sacrebleu"] == pytest.approx(sacrebleu.corpus_bleu(DETOKENISED, [references]).score, abs=0.01)
    assert found["signature"].startswith("nrefs:1|case:mixed|") and "tok:13a" in found["signature"]
    assert found["compound_split_bleu"] != found["tokenized_bleu"]
    assert found["rouge1"] > found["rouge2"] > 0 and found["rougeL"] > 0


def test_two_files(tmp_path, capsys):
    for name, lines in (("h", HYPOTHESES), ("r", REFERENCES), ("raw", DETOKENISED)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    common = ["--sys", tmp_path / "h", "--ref", tmp_path / "r"]
    assert scores(capsys, *common, "--metrics", "rouge")["rouge1"] < 100
    assert scores(capsys, *common, "--raw-ref", tmp_path / "raw", "--metrics", "sacrebleu")["sacrebleu"] == 100
    found = scores(capsys, "--sys", tmp_path / "h", "--ref", tmp_path / "h")
    assert found["tokenized_bleu"] == found["compound_split_bleu"] == found["rougeLsum"] == 100


def test_an_empty_hypothesis_counts(tmp_path):
    (tmp_path / "gen").write_text("T-0\ta b\nD-0\t-inf\t\nT-1\tc\nD-1\t0\tc\n")
    assert read_generated(str(tmp_path / "gen")) == (["", "c"], ["a b", "c"])


def test_compounds():
    assert split_compounds(["well-known x - y -z"]) == ["well ##AT##-##AT## known x - y -z"]


def test_exact_values():
    """All metrics of German and of English: markup of the tokeniser, quotation marks, sentences and unknown words."""
    english = [*HYPOTHESES[:2], "we don &apos;t know ."]
    references = [REFERENCES[0], f"{REFERENCES[1]} he slept", REFERENCES[2]]
    found = score.score(english, references, None, score.METRICS)
    signature = found.pop("signature").rpartition("|version:")[0]
    assert signature == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"
    rouge = {"rouge1": 66.67, "rouge2": 35.38, "rougeL": 66.67, "rougeLsum": 66.67}
    bleu = {"sacrebleu": 29.32, "tokenized_bleu": 28.81, "compound_split_bleu": 41.32}
    assert found == {"sentences": 3, **bleu, **rouge}
    german = score.score(
        ["sagt &quot; ja , er kommt &quot; ."], ["sagt &quot; ja , er <<unk>> &quot; ."], None, ["sacrebleu"], "de"
    )
    expected = sacrebleu.corpus_bleu(['sagt "ja, er kommt".'], [['sagt "ja, er \u2047".']])
    assert german["sacrebleu"] == round(expected.score, 2) and 0 < german["sacrebleu"] < 100
    words = "l' homme dort dans l' ombre ."
    french = score.score([words], [words], ["l'homme dort dans l'ombre."], ["sacrebleu"], "fr")
    assert french["sacrebleu"] == 100.0, "joined as in French"
    two = score.rouge(["b c . a b"], ["a b . b c"])
    assert two["rougeLsum"] == 100.0 > two["rougeL"], "the union of its sentences"


@pytest.mark.parametrize("subword", ["ab@@", "\u2581ab"])
def test_few_subwords_are_allowed(subword):
    """One word in a hundred: a text may be about them."""
    words = " ".join(["word"] * 99)
    score.refuse_subwords([words, subword])
    with pytest.raises(UserError, match="^2 of 101 words are subwords"):
        score.refuse_subwords([f"{words} {subword}", subword])


def test_languages():
    """Each metric takes the language: values of sacreBLEU's own tokenisers, and ROUGE of words that are not ASCII."""
    from sacrebleu.metrics import BLEU

    hypotheses = ["我 喜欢 喝 茶 和 咖啡 。", "今天 天气 很 好 , 我们 去 公园 吧 。"]
    references = ["我 喜欢 喝 绿茶 和 咖啡 。", "今天 天气 真 好 , 我们 去 公园 吧 。"]
    raw = [[line.replace(" ", "") for line in lines] for lines in (hypotheses, references)]
    found = score.score(hypotheses, references, raw[1], ("sacrebleu", "rouge"), "zh")
    assert found["sacrebleu"] == pytest.approx(BLEU(trg_lang="zh").corpus_score(raw[0], [raw[1]]).score, abs=0.01)
    assert found["sacrebleu"] > 50 and "tok:zh" in found["signature"] and 80 < found["rouge1"] < 100
    assert score.score(hypotheses, references, raw[1], ("sacrebleu", "rouge"), "zh_CN") == found
    german = score.rouge(["größere Tür"], ["größere Türen"], "de")
    assert german["rouge1"] == 50.0, "two words, not g, ere, t and r"
    assert score.rouge(["он читает"], ["он читает"], "ru")["rougeL"] == 100.0
    assert score.rouge(["he reads"], ["he read"])["rouge1"] == 100.0, "with stemming"
    try:
        BLEU(trg_lang="ja")
    except (ImportError, RuntimeError):
        with pytest.raises(UserError, match="^--language ja: .*pip install"):
            score.score(["茶"], ["茶"], language="ja")


def test_no_warning_of_tokenised_texts(capsys, caplog, tmp_path):
    """Which sacrebleu would tell of: they are meant to be."""
    for name in ("sys", "ref"):
        (tmp_path / name).write_text("a cat sat .\n" * 150)
    found = scores(capsys, "--sys", tmp_path / "sys", "--ref", tmp_path / "ref", "--metrics", "tokenized_bleu")
    assert found["tokenized_bleu"] == 100 and not caplog.messages
