"""Export to transformers and back: the same logits, continuations and perplexity as fairseq's commands."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("transformers")
import fb_fairseq.transformers  # noqa: E402, F401  before anything of transformers, as users do

# isort: split
from fairseq.sequence_generator import SequenceGenerator  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline  # noqa: E402

from fb_fairseq import byte_codec  # noqa: E402
from fb_fairseq.commands.average_checkpoints import main as average  # noqa: E402
from fb_fairseq.commands.explore import reading  # noqa: E402
from fb_fairseq.commands.export.command import main as export  # noqa: E402
from fb_fairseq.commands.import_transformers import main as import_transformers  # noqa: E402
from fb_fairseq.commands.texts import load_data  # noqa: E402
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.tensor_files import model_options  # noqa: E402
from fb_fairseq.transformers.configuration import EOS, PAD  # noqa: E402
from tests.cli.checkpoints import assert_same_parameters, eval_lm, interactive, load, loss_in  # noqa: E402
from tests.cli.conftest import ARCHITECTURES, TRANSFORMERS  # noqa: E402
from tests.cli.fairseq_commands import json_logs, run, train  # noqa: E402
from tests.cli.own_commands import one_line  # noqa: E402
from tests.cli.words import ADAPTIVE, UNTIED  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402


def trained(data, folder, **options):
    """Train a model for a few updates. Returns its checkpoint; the log is beside it."""
    options = {"max_update": 40, "disable_validation": True, "no_epoch_checkpoints": True, **options}
    log = train(data, folder, **options)
    (folder / "log").write_text(log)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def exported(language_models, tmp_path_factory):
    """The checkpoint of a byte model of each architecture, and the folder that it is exported to."""
    result = {}
    for arch, checkpoint in language_models.items():
        folder = tmp_path_factory.mktemp(arch) / "model"
        export([str(checkpoint), "--to", str(folder)])
        result[arch] = checkpoint, folder
    return result


def load_exported(folder):
    """An exported model and its tokenizer, as transformers loads them."""
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logits_and_perplexity(exported, byte_data, arch):
    """Of a whole split, read in blocks of one stream: as fairseq-eval-lm."""
    checkpoint, folder = exported[arch]
    model, tokenizer = load_exported(folder)
    fairseq_model, task = load(checkpoint, byte_data)
    task.load_dataset("valid")
    tokens = task.dataset("valid").corpus[-1 : len(task.dataset("valid").corpus)]
    with torch.no_grad():
        ours = model(tokens[None, :200]).logits
        torch.testing.assert_close(ours, fairseq_model(tokens[None, :200])[0], atol=1e-6, rtol=1e-6)
        cache, nats = None, 0.0
        for block in tokens[:-1].split(64):
            output = model(block[None], past_key_values=cache)
            cache = output.past_key_values
            start = cache.get_seq_length() - len(block)
            targets = tokens[start + 1 : start + 1 + len(block)]
            nats -= output.logits[0].log_softmax(-1).double().gather(1, targets[:, None]).sum().item()
    log = eval_lm(byte_data, checkpoint, gen_subset="valid", valid_streams=1, tokens_per_sample=64)
    assert nats / math.log(2) / (len(tokens) - 1) == pytest.approx(loss_in(log), abs=6e-5)


@pytest.mark.parametrize("arch", TRANSFORMERS)
@pytest.mark.parametrize("beam", [1, 4])
def test_continuations(exported, byte_data, tmp_path, arch, beam):
    """Greedy and beam search give the texts of fairseq-interactive."""
    checkpoint, folder = exported[arch]
    model, tokenizer = load_exported(folder)
    prompts = ["def main(", "the", "x ="]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    assert batch["input_ids"][:, 0].tolist().count(tokenizer.pad_token_id) == 2, "padded on the left"
    # Of fixed length, in both programs: fairseq keeps </s> from being chosen before.
    options = dict(do_sample=False, eos_token_id=-1, suppress_tokens=[PAD, EOS])
    options.update(num_beams=beam, num_return_sequences=beam)
    output = model.generate(**batch, max_new_tokens=20, **options)
    fairseq_model, task = load(checkpoint, byte_data)
    if beam == 1:
        theirs = interactive(byte_data, checkpoint, tmp_path, prompts, "--beam", 1, "--max-len-b", 20)
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        for text, ours in zip(theirs, [byte_codec.escape(text.encode()) for text in texts]):
            assert len(text) > 12 and (ours.startswith(text) or text.startswith(ours)), (ours, text)
    for prompt, ours in zip(prompts, output.split(beam)):
        tokens = tokenizer(prompt, return_tensors="pt")["input_ids"]
        length = tokens.shape[1] - 1 + 20
        generator = SequenceGenerator(
            [fairseq_model], task.target_dictionary, beam_size=beam, max_len_b=length, min_len=length
        )
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.shape[1]])}}
        hypotheses = generator.generate([fairseq_model], sample, prefix_tokens=tokens[:, 1:], bos_token=EOS)[0]
        # fairseq ranks its hypotheses with the </s> that it puts at their end.
        expected = sorted(hypothesis["tokens"][-21:-1].tolist() for hypothesis in hypotheses)
        assert sorted(row[-20:].tolist() for row in ours) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_there_and_back(exported, byte_data, tmp_path, arch):
    """The imported checkpoint has the same parameters to the bit; fairseq's commands take it."""
    checkpoint, folder = exported[arch]
    import_transformers([str(folder), "--out", str(tmp_path / "back.pt")])
    assert_same_parameters(checkpoint, tmp_path / "back.pt")
    assert (tmp_path / "dict.txt").read_text().split()[::2] == (byte_data / "dict.txt").read_text().split()[::2]
    log = eval_lm(byte_data, tmp_path / "back.pt", gen_subset="valid", valid_streams=2, tokens_per_sample=64)
    assert "Loss (base 2)" in log


def test_card_of_an_average(byte_data, tmp_path):
    """It has no figures of the last checkpoint; training that starts from it has nothing of that one's training."""
    trained(byte_data, tmp_path, max_update=20, save_interval_updates=5, patience=2, validate_interval_updates=10)
    average(["--inputs", str(tmp_path), "--num-update-checkpoints", "2", "--output", str(tmp_path / "average.pt")])
    export([str(tmp_path / "average.pt"), "--to", str(tmp_path / "model")])
    assert "validation" not in (tmp_path / "model/README.md").read_text()
    for name in ("restore_file", "finetune_from_model"):
        log = train(byte_data, tmp_path / name, **{name: tmp_path / "average.pt"}, max_update=3)
        assert "average.pt (epoch 1 @ 0 updates)" in log and len(json_logs(log, "valid")) == 1


def facts(folder):
    """The lines of a card that no configuration says."""
    card = (folder / "README.md").read_text()
    names = "data|updates|validation [a-z ]+|numbers|hardware|test"
    return set(re.findall(rf"^(license: .*|- [a-z][a-z]|\| (?:{names}) \| .*)$", card, re.MULTILINE))


@pytest.fixture(scope="module")
def model_with_facts(byte_data, tmp_path_factory):
    """The folder of an exported model, and the ``facts`` of its card."""
    folder = tmp_path_factory.mktemp("facts")
    options = dict(max_update=20, disable_validation=False, validate_interval_updates=10)
    checkpoint = trained(byte_data, folder, **options)
    notes = ["--note", "hardware=a | b", "--note", "test=2.5 bits"]
    more = ["--data", "a made-up text", "--license", "mit", "--language", "en", *notes]
    export([str(checkpoint), "--to", str(folder / "model"), *more])
    return folder / "model", facts(folder / "model")


def test_facts_travel_with_the_weights(model_with_facts, tmp_path):
    """From export to import and export; what the command line says replaces them."""
    model, known = model_with_facts
    assert len(known) == 7 and {"license: mit", "| updates | 20 |", "| test | 2.5 bits |"} < known
    back = tmp_path / "back.pt"
    import_transformers([str(model), "--out", str(back)])
    history = torch.load(back, weights_only=False)["optimizer_history"]
    assert [entry["num_updates"] for entry in history] == [0], "of the checkpoint itself: training begins anew"
    export([str(back), "--to", str(tmp_path / "again")])
    assert facts(tmp_path / "again") == known
    export([str(back), "--to", str(tmp_path / "changed"), "--license", "apache-2.0", "--note", "test=2.4 bits"])
    changed = {"license: apache-2.0", "| test | 2.4 bits |"}
    assert facts(tmp_path / "changed") == known - {"license: mit", "| test | 2.5 bits |"} | changed
    export([str(back), "--to", str(tmp_path / "half"), "--dtype", "bfloat16"])
    rounded = "| numbers | rounded to bfloat16 after the figures above were measured |"
    assert facts(tmp_path / "half") == known | {rounded}


def test_facts_of_averages_and_changed_weights(model_with_facts, tmp_path):
    """Of other weights no figures are said; of changed ones nothing, and nothing made up: no updates that were not
    made."""
    original, known = model_with_facts
    model = shutil.copytree(original, tmp_path / "model")
    back = tmp_path / "back.pt"
    averaged = tmp_path / "average.pt"
    import_transformers([str(model), "--out", str(back)])
    average(["--inputs", str(back), str(back), "--output", str(averaged)])
    export([str(averaged), "--to", str(tmp_path / "averaged")])
    texts = {line for line in known if not re.match(r"\| (validation|hardware|test)", line)}
    assert facts(tmp_path / "averaged") == texts and "| updates | 20 |" in texts
    changed, _ = load_exported(model)
    with torch.no_grad():
        changed.decoder.output_projection.bias.add_(1)
    changed.save_pretrained(model)
    import_transformers([str(model), "--out", str(back)])
    average(["--inputs", str(back), "--output", str(averaged)])
    for path in (back, averaged):
        export([str(path), "--to", str(tmp_path / f"of_{path.name}")])
        assert facts(tmp_path / f"of_{path.name}") == set()


def test_line_ends_of_a_model_without_them(word_data, tmp_path):
    """Trained with --omit-eos, it reads line ends as white space, after its export and import, too."""
    checkpoint = trained(word_data, tmp_path, omit_eos=True, disable_validation=False)
    loss = float(json_logs((tmp_path / "log").read_text(), "valid")[-1]["valid_loss"])
    export([str(checkpoint), "--to", str(tmp_path / "model")])
    model, tokenizer = load_exported(tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["omit_eos"]
    assert tokenizer("w1\nw2 \n")["input_ids"] == tokenizer("w1 w2")["input_ids"]
    text = (word_data.parent / "valid").read_text()
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        nats = torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0], ids[0, 1:]).item()
    one_stream = loss_in(eval_lm(word_data, checkpoint, gen_subset="valid", valid_streams=1))
    assert nats / math.log(2) == pytest.approx(one_stream, abs=1e-3)
    assert loss_in(eval_lm(word_data, checkpoint, gen_subset="valid", valid_streams=3)) == pytest.approx(loss, abs=1e-3)
    (tmp_path / "back").mkdir()
    import_transformers([str(tmp_path / "model"), "--out", str(tmp_path / "back/model.pt")])
    back = eval_lm(word_data, tmp_path / "back/model.pt", gen_subset="valid", valid_streams=1)
    assert loss_in(back) == pytest.approx(one_stream, abs=1e-4)


def test_omit_eos_in_other_commands(word_data, tmp_path):
    """A checkpoint says whether it was trained with --omit-eos; a task without the option, and the option for a model
    that was trained without it, are refused."""
    checkpoint = trained(word_data, tmp_path, omit_eos=True, max_update=1)
    export([str(checkpoint), "--to", str(tmp_path / "model")])
    one_stream = loss_in(eval_lm(word_data, checkpoint, gen_subset="valid", valid_streams=1))
    given = eval_lm(word_data, checkpoint, gen_subset="valid", valid_streams=1, omit_eos=True)
    assert loss_in(given) == pytest.approx(one_stream, abs=1e-4)
    for path in (checkpoint, tmp_path / "model"):
        explored = reading.load(str(path), str(word_data) if path == checkpoint else None, cpu=True)
        assert explored.vocabulary.encode("w1\nw2") == explored.vocabulary.encode("w1 w2")
        text = load_data(explored, str(word_data), "valid")
        assert not text[0 : len(text)].eq(EOS).any(), "what figures are drawn of"
    with pytest.raises(UserError, match="was trained with --omit-eos, which this task does not have"):
        eval_lm(word_data, checkpoint, gen_subset="valid", task="language_modeling")
    other = trained(word_data, tmp_path / "other", max_update=1)
    for command, more in (("eval-lm", ["--gen-subset", "valid"]), ("validate", [])):
        arguments = [word_data, "--task", "streaming_lm", "--path", other, "--cpu", *more]
        run(command, *arguments)
        with pytest.raises(UserError, match=f"--omit-eos: --path {other} was trained without it"):
            run(command, *arguments, "--omit-eos")


def test_weights_in_several_files(exported, tmp_path, capsys):
    """As save_pretrained splits them, if it is told to: refused in one line."""
    model, _ = load_exported(exported["feedback_transformer_lm"][1])
    model.save_pretrained(tmp_path / "split", max_shard_size="20KB")
    line = one_line(capsys, import_transformers, tmp_path / "split", "--out", tmp_path / "back.pt")
    assert line.endswith("split: has no model.safetensors; give a folder with all weights in this file")
    assert not (tmp_path / "back.pt").exists()


@pytest.mark.parametrize("tied", [False, True])
def test_words(word_data, tmp_path, tied):
    """With adaptive input and softmax, and a dictionary of words."""
    checkpoint = trained(
        word_data, tmp_path, adaptive_softmax_bias=not tied, **{**ADAPTIVE, **({} if tied else UNTIED)}
    )
    export([str(checkpoint), "--to", str(tmp_path / "model")])
    model, tokenizer = load_exported(tmp_path / "model")
    fairseq_model, task = load(checkpoint, word_data)
    text = "w1  w2 w70 nonsense w3"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    encoded = task.source_dictionary.encode_line(text, append_eos=False, add_if_not_exist=False)
    assert ids[0].tolist() == [2, *encoded.tolist()]
    with torch.no_grad():
        expected = fairseq_model.get_normalized_probs(fairseq_model(ids), log_probs=True)
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-6, rtol=1e-6)
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == "w1 w2 w70 <unk> w3"
    (tmp_path / "back").mkdir()
    import_transformers([str(tmp_path / "model"), "--out", str(tmp_path / "back/model.pt")])
    assert_same_parameters(checkpoint, tmp_path / "back/model.pt")
    export([str(checkpoint), "--to", str(tmp_path / "half"), "--dtype", "bfloat16"])
    types = {x.dtype for x in load_file(tmp_path / "half/model.safetensors").values()}
    assert types == {torch.bfloat16, torch.long}


def test_files_and_pipeline(exported):
    """The folder is a model of transformers like any other; it is loaded without fairseq."""
    _, folder = exported["feedback_transformer_lm"]
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "others may read all of them"
    assert "The model reads bytes" in (folder / "README.md").read_text()
    generator = pipeline("text-generation", model=str(folder))
    (result,) = generator("def main(", max_new_tokens=5, do_sample=False)
    assert result["generated_text"].startswith("def main(")
    program = (
        "import sys; sys.modules['fairseq'] = None; import fb_fairseq.transformers; "
        "from transformers import AutoModelForCausalLM as A, AutoTokenizer as T; "
        f"t = T.from_pretrained({str(folder)!r}); m = A.from_pretrained({str(folder)!r}); "
        "print(t.decode(m.generate(**t('def ', return_tensors='pt'), max_new_tokens=4)[0]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0 and "def " in done.stdout, done.stderr[-2000:]


def test_bad_input(language_models, tmp_path, capsys):
    checkpoint = language_models["feedback_transformer_lm"]
    to = ["--to", tmp_path / "model"]
    saved = torch.load(checkpoint, weights_only=False)
    stock = dict(_name="transformer_lm", arch="transformer_lm")
    for options, message in (
        (stock, "streaming_lstm_lm, feedback_decoder"),
        (dict(attention_span=3), "decoder.positions.key: not as its own options say"),
    ):
        content = {**saved, "cfg": {**saved["cfg"], "model": {**model_options(saved), **options}}}
        torch.save(content, tmp_path / "changed.pt")
        assert message in one_line(capsys, export, tmp_path / "changed.pt", *to)
    assert not (tmp_path / "model").exists()


def test_without_the_import(exported):
    """The FAQ has what transformers says."""
    program = "import sys; from transformers import AutoConfig; AutoConfig.from_pretrained(sys.argv[1])"
    folder = exported["feedback_transformer_lm"][1]
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=120)
    beginning, end = "The checkpoint you are trying to load has model type", "does not recognize this architecture."
    assert beginning in done.stderr and end in done.stderr
    assert f"{beginning} … but Transformers {end}" in (REPOSITORY / "docs/faq.md").read_text()
