"""Toy tasks, agents, the variants of persistent memory and decoding have the papers' settings
(``fb_fairseq/papers/values/hyperparameters.json``). Those of the models: test_settings.py."""

import argparse
import inspect

import pytest
import torch
from fairseq import models

from fb_fairseq.papers.experiments.bytes_and_letters import PERSISTENT_MEMORY
from fb_fairseq.papers.experiments.corpora.read_csv import WORDS
from fb_fairseq.papers.experiments.reinforcement_learning import FULL_SEEDS
from fb_fairseq.papers.rl.envs import ENVS
from fb_fairseq.papers.rl.envs.maze import COLOURS
from fb_fairseq.papers.rl.presets import preset_options
from fb_fairseq.papers.toy_tasks import load as load_task
from fb_fairseq.papers.toy_tasks.algorithmic import MIXES
from fb_fairseq.papers.values import load
from tests.models.decoders import dictionary
from tests.papers.runner.printed import commands, printed, trainings, values

TABLES = load("hyperparameters")
TOYS, AGENTS, FIGURE_2, DECODING = (
    TABLES[name]["columns"] for name in ("toy tasks", "reinforcement learning", "all-attention Figure 2", "decoding")
)


def data_of(task, *arguments):
    """The options of a recipe's data, by name."""
    (words,) = commands(printed(task, "--full", *arguments), f"python -m fb_fairseq synthetic-tasks {task}")
    return {name[2:].replace("-", "_"): value for name, value in zip(words[5:], words[6:]) if name.startswith("--")}


@pytest.mark.parametrize("column", TOYS)
def test_toy_tasks(column):
    """The data of ``--full``, and where they do not name a size, the task's default."""
    task = column.replace(" ", "_")
    data = data_of(task)
    for name, value in TOYS[column].items():
        option = load_task(task).TASK.options.get(name)
        if option or name in ("train", "valid", "test", "test_length"):
            first = value[0] if isinstance(value, list) else value  # the other one has to be asked for
            assert int(data.get(name, getattr(option, "default", 0))) == first, name
    (run, *_) = trainings(printed(task, "--full", "--models", "feedback_transformer_lm"))
    for name, option in (("span", "attention_span"), ("clip_norm", "clip_norm"), ("lr", "lr")):
        if name in TOYS[column]:
            found = getattr(run, option)
            assert (found[0] if isinstance(found, list) else found) == TOYS[column][name], name


def test_the_other_values_of_toy_tasks():
    """They can be asked for: as many as the papers have."""
    assert data_of("counting", "--longest", TOYS["counting"]["longest"][1])["longest"] == "1000"
    assert data_of("blocked_random_walk", "--train", TOYS["blocked random walk"]["train"][1])["train"] == "1000000"
    assert data_of("algorithmic", "--variables", TOYS["algorithmic"]["variables"][1])["variables"] == "5"
    for layers, arguments in zip(TOYS["algorithmic"]["layers"], ([], ["--layers", 8])):
        (run,) = trainings(printed("algorithmic", "--full", "--models", "relative_transformer_lm", *arguments))
        assert run.decoder_layers == layers


def test_algorithmic_task():
    """Statements are drawn as in v3 Table 7; where the paper says nothing, as in the published program."""
    paper, data = TOYS["algorithmic"], data_of("algorithmic")
    assert data["mix"] == "table7" and "nested_assignments" in data
    assert set(MIXES["table7"]) == {"initialise", "change", "print", "condition"}
    (run,) = trainings(printed("algorithmic", "--full", "--models", "feedback_transformer_lm"))
    assert run.max_update == paper["published"]["updates"]
    assert (data["valid"], data["test"]) == (str(paper["published"]["valid"]), str(paper["published"]["test"]))


@pytest.mark.parametrize("column", AGENTS)
@pytest.mark.parametrize("agent", ["feedback", "transformer", "lstm"])
def test_agents(column, agent):
    paper, name = dict(AGENTS[column]), column.replace(" ", "_")
    lstm = paper.pop("lstm")
    if agent == "lstm":
        paper.update(lstm)
    training, options = preset_options(name, agent, False, {})
    sizes = {key: parameter.default for key, parameter in inspect.signature(ENVS[name]).parameters.items()}
    sizes.update(training.sizes)
    ours = {**sizes, **vars(training), **vars(options)}
    assert len(FULL_SEEDS) == paper.pop("trials") and COLOURS == paper.pop("objects", COLOURS)
    if "view" in paper:
        cells = [size for size in ENVS[name](1).observation_sizes if size != COLOURS]
        assert len(cells) == paper.pop("view") ** 2
    assert paper.pop("last_episodes", 500) == 500
    assert {key: ours[key] for key in paper} == paper


def parameters(run):
    """The number of parameters of a recipe's model, on text8."""
    words, registered = dictionary(24), models.ARCH_MODEL_NAME_REGISTRY[run.arch]
    cfg = models.MODEL_DATACLASS_REGISTRY[registered].from_namespace(run)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    with torch.device("meta"):
        model = models.ARCH_MODEL_REGISTRY[run.arch].build_model(cfg, task)
    named = list(model.named_parameters())
    vectors = sum(value.numel() for name, value in named if "persistent_memory" in name)
    return sum(value.numel() for _, value in named), vectors


def test_figure_2():
    """All-attention §5.3: "all those versions have the same number of parameters except head-split"."""
    names = [*PERSISTENT_MEMORY.full.models]
    runs = dict(zip(names, trainings(printed("persistent_memory", "--steps", "train"))))
    wanted = FIGURE_2["number of vectors"]
    assert {f"N{size}" for size in wanted["persistent_vectors"]} < set(runs)
    assert parameters(runs["N0"])[0] == pytest.approx(wanted["parameters_without_vectors"], rel=0.02)
    ff_attn = runs["ff-attn"]
    paper = FIGURE_2["FF-attn"]
    assert (ff_attn.decoder_layers, ff_attn.persistent_memory_size) == (paper["layers"], paper["persistent_vectors"])
    (default, vectors), *others = (parameters(runs[name]) for name in ("N2048", "attn-split", "single-head", "ff-attn"))
    assert [number for number, _ in others[:2]] == [default] * 2
    # FF-attn's sizes, the paper's, make 101.3M of 113.8M.
    assert others[2][0] == pytest.approx(0.8896 * default, rel=0.005)


def test_head_split():
    """In the paper it leaves half of the persistent vectors unused, so that 76.1M parameters are left. Ours also leaves
    out the projections of the context in the heads that do not attend to it: 66.7M."""
    runs = dict(zip(PERSISTENT_MEMORY.full.models, trainings(printed("persistent_memory", "--steps", "train"))))
    (default, vectors), (own, own_vectors) = (parameters(runs[name]) for name in ("N2048", "head-split"))
    used = FIGURE_2["head-split"]["persistent_vectors_used"]
    assert own_vectors == used * vectors
    papers = default - (1 - used) * vectors
    assert (round(papers / 1e6, 1), round(own / 1e6, 1)) == (76.1, 66.7)
    run = runs["head-split"]
    projections = run.decoder_layers * 2 * (run.decoder_embed_dim // 2) * (run.decoder_embed_dim + 1)
    assert papers - own == pytest.approx(projections, rel=0.01)


@pytest.mark.parametrize("column,recipe", [("WMT En-De", "wmt14_en_de"), ("IWSLT De-En", "iwslt14_de_en")])
def test_decoding_of_translations(column, recipe):
    paper, text = DECODING[column], printed(recipe, "--models", "feedback", "--layers", 1)
    assert set(values(text, "--beam", "fairseq-generate")) == {str(paper["beam"])}
    averaged = values(text, "--num-update-checkpoints", "python -m fb_fairseq average-checkpoints")
    assert averaged == [str(paper["averaged_checkpoints"])] * (paper["averaged_checkpoints"] > 1)
    penalties = values(text, "--lenpen", "fairseq-generate")
    subsets = values(text, "--gen-subset", "fairseq-generate")
    tuned = [penalty for penalty, subset in zip(penalties, subsets) if subset == "valid"]
    assert (len(set(tuned)) > 1) == (paper["tuned"] == "length penalty")
    metric = {"compound-split BLEU": "compound_split_bleu", "tokenised BLEU": "tokenized_bleu"}[paper["metric"]]
    assert metric in values(text, "--metrics", "python -m fb_fairseq score")


def test_decoding_of_summaries():
    paper, text = DECODING["Summarization"], printed("cnn_dm", "--models", "feedback", "--layers", 1)
    generations = commands(text, "fairseq-generate")
    assert len(values(text, "--no-repeat-ngram-size", "fairseq-generate")) == len(generations) > 1
    assert set(values(text, "--no-repeat-ngram-size", "fairseq-generate")) == {str(paper["blocked_ngrams"])}
    assert len({*values(text, "--max-len-b", "fairseq-generate")}) > 1, "tuned in length"
    assert WORDS == paper["words_of_the_article"]
