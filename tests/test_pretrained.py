"""Models that come with the package: the same in plain PyTorch, in transformers and in fairseq, as good as their cards
say, and found by their names in every command."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import pytest
import torch

from fb_fairseq import pretrained
from fb_fairseq.commands import main
from fb_fairseq.commands.explore import reading
from fb_fairseq.errors import DEBUG_VARIABLE, UserError
from fb_fairseq.ops.feedback.stepper import Stepper
from fb_fairseq.papers.state_tracking.problems import Sequences
from fb_fairseq.pretrained import folders
from fb_fairseq.pretrained.model import build, choices
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, PAD, SPECIAL, UNK
from fb_fairseq.trained_model import TrainedModel
from tests.conftest import REPOSITORY


def card(name):
    return (Path(pretrained.folder(name)) / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", pretrained.NAMES)
@torch.no_grad()
def test_the_same_everywhere(name, tmp_path, monkeypatch):
    """At once and step by step, in blocks, in transformers, and as a checkpoint of fairseq."""
    model = pretrained.load(name)
    tokens_TB = torch.randint(UNK + 1, len(model.symbols), (40, 3))
    tokens_TB[0] = EOS
    expected_TBV, _ = model(tokens_TB)
    first, state = model(tokens_TB[:17])
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(torch.cat([first, model(tokens_TB[17:], state, 17)[0]]), expected_TBV)
    close(torch.stack(list(map(model.reader(1), tokens_TB[:, 1].tolist()))), expected_TBV[:, 1].log_softmax(-1))
    pytest.importorskip("transformers")
    import fb_fairseq.transformers  # noqa: F401

    # isort: split
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer, pipeline

    text = "21435 23145\n21354 <unk>" if name == "a5" else "def f(é):\n\t"
    assert model.decode(model.encode(text)) == text
    tokenizer = AutoTokenizer.from_pretrained(pretrained.folder(name))
    assert tokenizer(text)["input_ids"] == [EOS, *model.encode(text)]
    if name == "a5":
        found = pipeline("token-classification", model=pretrained.folder(name))("21435 21354 23145")
        assert [one["entity"] for one in found] == ["21435", "12453", "24153"]
    auto = AutoModelForTokenClassification if name == "a5" else AutoModelForCausalLM
    close(auto.from_pretrained(pretrained.folder(name))(tokens_TB.t()).logits.transpose(0, 1), expected_TBV)
    pytest.importorskip("fairseq")
    from fairseq import checkpoint_utils

    from fb_fairseq.commands.fairseq_commands import checkpoint_of

    monkeypatch.setenv("FB_FAIRSEQ_CACHE", str(tmp_path))
    _, path = (checkpoint_of(name) for _ in range(2))
    (built,), _, task = checkpoint_utils.load_model_ensemble_and_task([path])
    assert task.source_dictionary.symbols == model.symbols and task.args.labels == (name == "a5")
    close(built.eval()(tokens_TB.t())[0].transpose(0, 1), expected_TBV)


@pytest.mark.parametrize("seed", [1, None])
def test_the_random_numbers_of_the_process_stay(seed):
    """Loading and generating leave them alone: training with samples in between has the dropout that it has without."""
    before = torch.get_rng_state()
    model = pretrained.load("python")
    texts = [model.generate("def ", length=20, topk=0, seed=seed) for _ in range(2)]
    assert (texts[0] == texts[1]) == (seed is not None)
    assert torch.get_rng_state().equal(before)


def test_temperatures_that_are_no_number():
    """At an infinite one all are as likely, but what is never drawn; one that is none is refused."""
    probabilities, tokens = choices(torch.tensor([0.5, 0.25, 0.25]).log(), [1], float("inf"), 0)
    assert dict(zip(tokens.tolist(), probabilities.tolist())) == {0: 0.5, 2: 0.5, 1: 0.0}
    with pytest.raises(UserError, match="temperature and top-k of 0 or more"):
        pretrained.load("python").generate("a", length=1, temperature=float("nan"))


@pytest.mark.parametrize(
    "change,told", [({"vocab_size": None}, "its model None"), (None, "config.json: cannot be rea")]
)
def test_configurations_that_lack_something(change, told, tmp_path):
    shutil.copytree(pretrained.folder("python"), tmp_path / "model")
    path = tmp_path / "model/config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(change and {name: value for name, value in config.items() if name not in change}))
    with pytest.raises(UserError, match=told):
        pretrained.load(str(tmp_path / "model"))


@pytest.mark.parametrize("error", [PermissionError(13, "no", "a/b"), MemoryError()])
def test_errors_of_the_machine_stay(error):
    """They have a line of their own."""
    with pytest.raises(type(error)) as raised, folders.reading("model.safetensors"):
        raise error
    assert raised.value is error


def test_other_errors_of_files(monkeypatch):
    """They are one line about the file, unless the user looks for the fault."""
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    with pytest.raises(UserError, match=r"^config.json: cannot be read \(.a.\); give "), folders.reading("config.json"):
        raise KeyError("a")
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(KeyError), folders.reading("config.json"):
        raise KeyError("a")


@pytest.mark.parametrize(
    "arch,remedy",
    [
        ("feedback_decoder", "use fairseq-interactive for translation$"),
        ("transformer_lm", "give one of feedback_transformer_lm, "),
    ],
)
def test_other_architectures(arch, remedy):
    with pytest.raises(UserError, match=f"^a.pt: is not a language model of this package; {remedy}"):
        build(TrainedModel("a.pt", {"arch": arch}, {}))


@pytest.mark.parametrize("kind,storage", [("feedback_transformer_lm", "vectors"), ("streaming_lstm_lm", None)])
def test_options_of_a_folder(kind, storage, tmp_path, monkeypatch):
    """An LSTM's have no memory."""
    config = {"model_type": kind, "memory_storage": "vectors", "decoder_layers": 3, "labels": None, "omit_eos": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(folders, "read_weights", lambda path: {"a": 1, "decoder.b": 2})
    monkeypatch.setattr(folders, "add_symbols", lambda *_: None)
    trained = folders.read_folder(str(tmp_path))
    assert (trained.options["arch"], trained.options["decoder_layers"]) == (kind, 3)
    assert trained.options.get("memory_storage") == storage
    assert trained.parameters == {"decoder.a": 1, "decoder.b": 2} and trained.task == {"omit_eos": True}


@pytest.mark.parametrize("second,shared,folder", [(1, 0, "target"), (0, 0, ""), (0, 1, ""), (1, 1, "")])
def test_tokenizers_of_both_languages(second, shared, folder, tmp_path, monkeypatch):
    """One is enough if the dictionaries are equal."""
    read = []
    monkeypatch.setattr(folders, "read_symbols", lambda path: read.append(path) or (SPECIAL, False))
    if second:
        (tmp_path / "target").mkdir()
    task = {"source_lang": "de", "target_lang": "en"}
    trained = TrainedModel(str(tmp_path), {"arch": "feedback_decoder"}, {}, task)
    config = {"vocab_size": 4, "source_vocab_size": 4, "share_all_embeddings": bool(shared)}
    folders.add_symbols(trained, config)
    assert [Path(path) for path in read] == [tmp_path, tmp_path / folder]
    assert trained.symbols == {"dict.de.txt": SPECIAL, "dict.en.txt": SPECIAL}


def test_a_file_is_no_model(tmp_path, monkeypatch):
    """Not even one that is called like a model, which every command would take for the user's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").touch()
    with pytest.raises(UserError, match="python: no such folder; give one of export, or python or a5"):
        pretrained.load("python")


@torch.no_grad()
def test_the_length_of_the_prompt_is_known_to_its_reader(monkeypatch):
    """It decides which loop reads."""
    model, found = pretrained.load("python"), []
    reader = model.reader

    def read(_, steps):
        found.append(steps)
        return reader(steps)

    monkeypatch.setattr(type(model), "reader", read)
    model.generate("abc", length=2)
    main(["generate", "--prompt", "abc", "--length", "2", "--cpu"])
    assert found == [5, 5]


def test_bits_of_held_out_modules():
    """Those that the card names, in the library of this Python."""
    told = re.search(r"([\d.]+) bits per byte in the first 4,000 bytes of each of (.*?) \|", card("python"))
    modules = [Path(sysconfig.get_paths()["stdlib"], name) for name in told[2].split(", ")]  # in all versions
    texts = [torch.tensor([EOS, *(byte + UNK + 1 for byte in path.read_bytes()[:4000])]) for path in modules]
    tokens_TB = torch.nn.utils.rnn.pad_sequence(texts, padding_value=PAD)
    logits_TBV, _ = pretrained.load("python")(tokens_TB[:-1])
    nats = torch.nn.functional.cross_entropy(logits_TBV.flatten(0, 1), tokens_TB[1:].flatten(), ignore_index=PAD)
    assert nats.item() / 0.6931 == pytest.approx(float(told[1]), abs=0.15)  # (modules change between versions)


def test_the_loop_for_a_short_text(monkeypatch):
    """The reference, which compiles nothing, unless another one is asked for."""
    ran, run = [], Stepper.run
    monkeypatch.setattr(Stepper, "run", lambda self, *given: ran.append(self.name) or run(self, *given))
    for asked in ("", "cpp"):
        monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", asked)
        pretrained.load("python").reader(1)(EOS)
    assert ran == ["reference", "cpp"]


@torch.no_grad()
def test_products_of_512_elements():
    """Of sequences that are drawn anew, in which every label counts."""
    assert "| test, 3,000 sequences of 512 | 100.00% without a mistake" in card("a5")
    inputs_BL, labels_BL = Sequences("word_problem", dict(group="A5"), seed=72).draw("test", 0, 512, 50)
    logits_TBV, _ = pretrained.load("a5")(torch.cat([torch.full((1, 50), EOS), inputs_BL.t() + UNK + 1]))
    assert logits_TBV[1:].argmax(-1).equal(labels_BL.t() + UNK + 1)


@pytest.mark.parametrize("name,told", [("python", "def main("), ("a5", "12345 21435 12453 24153")])
def test_the_cards_examples(name, told, capsys):
    pytest.importorskip("transformers")
    exec(re.search("```python\n(.*?)```", card(name), re.DOTALL)[1], {})
    assert capsys.readouterr().out.startswith(told)


def test_sizes():
    for name, most in {"python": 2_000_000, "a5": 500_000}.items():
        assert sum(path.stat().st_size for path in Path(pretrained.folder(name)).iterdir()) < most
        assert "| seed, hardware, time |" in card(name) and "| command |" in card(name)


def test_the_page_of_a_tracker():
    """A change in the middle changes all later products."""
    actions = pytest.importorskip("fb_fairseq.commands.explore.actions")
    explorer = actions.Tracker(reading.load("a5", cpu=True), 99)
    before = explorer.read(explorer.drawn(40))
    after = explorer.change("\n".join(explorer.text_of(before).split()), before, 21)
    shown = explorer.show(after, 21, 1.0, 10, True, 1)
    assert shown[0].count("ex-changed") == 20 and "<b>0 of 40 are wrong</b>" in shown[0]
    after.products = lambda: 40 * ["</s>"]  # as a model may say that has hardly been trained
    assert explorer.draw_text(after, 21).count("<i>&lt;/s&gt;</i>") == 40


def test_drawing_elements_on_the_page():
    """Many are a new text; one takes the place of a step's, or begins a text."""
    actions = pytest.importorskip("fb_fairseq.commands.explore.actions")
    explorer = actions.Tracker(reading.load("a5", cpu=True), 99)
    settings = (1.0, 10, True, 1)
    ((first, text, *_),) = explorer.show_generated("", None, 1, 0, *settings)
    assert text == explorer.text_of(first) and len(text.split()) == 1
    ((many, text, *shown),) = explorer.show_generated(text, first, 40, 0, *settings)
    assert text == explorer.text_of(many) and len(text.split()) == 40
    assert shown == explorer.show(many, 0, *settings)
    ((_, changed, *shown),) = explorer.show_generated(text, many, 1, 21, *settings)
    differences = [i for i, pair in enumerate(zip(text.split(), changed.split(), strict=True), 1) if len(set(pair)) > 1]
    assert differences == [21] and shown[0].count("ex-changed") == 20
    again, *shown = explorer.show_read(text, many, *settings)
    assert explorer.text_of(again) == text and "ex-changed" not in shown[0]
    assert "ex-changed" in explorer.show_read(changed, many, *settings)[1]


def test_the_page_of_a_tracker_with_two_dictionaries(monkeypatch):
    """fairseq-preprocess sorts and pads that of the inputs and that of the labels each by itself."""
    actions = pytest.importorskip("fb_fairseq.commands.explore.actions")
    model = pretrained.load("a5")
    elements = model.symbols[UNK + 1 :]
    inputs = [*SPECIAL, *reversed(elements), *(f"madeupword{i:04}" for i in range(500))]
    model.dictionaries = {"dict.input.txt": inputs, "dict.label.txt": [*SPECIAL, *elements, "madeupword0000"]}
    model.vocabulary = Vocabulary(inputs)
    model.embed_tokens.weight.data[UNK + 1 :] = model.embed_tokens.weight.data[UNK + 1 :].flip(0)
    monkeypatch.setattr(reading, "read_language_model", lambda *_: model)
    explorer = actions.Tracker(reading.load("a.pt"), 99)
    read = explorer.read(explorer.drawn(40))
    assert read.products() == read.right_products()


@pytest.mark.parametrize("labels", [["ab", "ba"], ["01", "10"], ["12", "123"]])
def test_labels_that_are_no_permutations(labels, monkeypatch):
    model = pretrained.load("a5")
    model.dictionaries["dict.label.txt"] = [*SPECIAL, *labels]
    monkeypatch.setattr(reading, "read_language_model", lambda *_: model)
    with pytest.raises(UserError, match="model.pt: its labels are no products of permutations"):
        reading.load("model.pt")


PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(("fairseq", "transformers", "tokenizers", "omegaconf")))  # cannot be imported
from fb_fairseq.commands import main
main(["generate", "--length", "9", "--cpu"])
from fb_fairseq.commands.explore.reading import Reading, load
reading = Reading(load("a5", cpu=True))
reading.read(reading.model.vocabulary.encode("21435 21354 23145"))
print(reading.products() == reading.right_products(), reading.right_products())
"""


def test_without_fairseq_and_transformers():
    """``generate`` takes a model and a prompt by itself."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("def main(") and "True ['21435', '12453', '24153']" in done.stdout, done.stderr


def test_a_model_of_labels_cannot_generate(capsys):
    pytest.importorskip("fairseq")
    with pytest.raises(SystemExit):
        main(["generate", "--path", "a5", "--cpu"])
    assert "--path a5: gives labels, and cannot generate text; use explore" in capsys.readouterr().err


def test_export_keeps_the_numbers_and_the_card(tmp_path):
    pytest.importorskip("fairseq")
    pytest.importorskip("transformers")
    for folder, options in {"python": ["--dtype", "bfloat16"], "wide": []}.items():
        main(["export", "python", "--to", str(tmp_path / folder), *options])
        models = (pretrained.load(name).parameters() for name in (str(tmp_path / folder), "python"))
        assert all(x.equal(y) for x, y in zip(*models))
        text = (tmp_path / folder / "README.md").read_text(encoding="utf-8")
        rows, expected = (each.partition("## Use")[0] for each in (text.replace("# wide", "# python"), card("python")))
        assert rows == expected, "all that is known"
    assert "| numbers | rounded to bfloat16, with which the figures above were measured |" in text
    assert "| updates | 13,500 |" in text and "\nlicense: PSF-2.0\n" in text


def test_plot_takes_names_and_folders(tmp_path):
    pytest.importorskip("matplotlib")
    main(["plot", "--layer-weights", "python", "a5", "--out", str(tmp_path / "weights.png")])
    options = ["--attention-map", "python", "--prompt", r"a\n", "--out", str(tmp_path / "map.svg")]
    main(["plot", "--attention", pretrained.folder("python"), *options])
    assert "<!-- \u21b5 -->" in (tmp_path / "map.svg").read_text(encoding="utf-8")


def test_paths_go_before_names(tmp_path, monkeypatch):
    """A file, or the folder of a model; another folder is not meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").mkdir()
    assert pretrained.find("python") == pretrained.folder("python") and pretrained.find("other") == "other"
    (tmp_path / "python/config.json").touch()
    (tmp_path / "a5").touch()
    assert [pretrained.find(name) for name in ("python", "a5")] == ["python", "a5"]
