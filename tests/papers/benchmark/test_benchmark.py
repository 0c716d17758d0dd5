"""The benchmark's commands: the JSON that they print, whatever the times in it."""

import json

import pytest
import torch

from fb_fairseq.ops import buffers
from fb_fairseq.papers.benchmark import bptt, train
from fb_fairseq.papers.benchmark.command import main
from fb_fairseq.papers.benchmark.measure import peak_bytes, saved_bytes

SMALL = "--layers 2 --embed-dim 16 --heads 2 --ffn-dim 16 --span 20 --batch-size 3".split()


pytestmark = pytest.mark.usefixtures("torch_threads")


def results(capsys, *arguments):
    main([arguments[0], *SMALL, *arguments[1:]])
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_decode(capsys):
    found = results(capsys, "decode", "--steps", "200")
    assert found["setting"]["span"] == 20 and found["setting"]["hardware"]
    sizes = {name: set(result["state_bytes"]) for name, result in found.items() if name != "setting"}
    slots = 3 * 16 * 20 * 4  # streams x width x slots x bytes
    assert sizes["feedback, keys-values"] == {2 * slots} and sizes["feedback, vectors"] == {slots}
    stock = found["fairseq's transformer_lm"]["state_bytes"]
    assert stock[-1] == 10 * stock[0] == 4 * slots * 200 // 20, "it keeps every token"
    assert sizes["transformer, keys-values"] == {4 * slots} and sizes["transformer, vectors"] == {2 * slots}


def test_span(capsys):
    found = results(capsys, "span", "--block", "10", "--repeats", "1")
    for name in ("feedback", "transformer", "all-attention"):
        kept = [found[f"{name}, span {span}"]["saved_bytes"] for span in (20, 10, 5)]
        assert kept == sorted(kept, reverse=True) and kept[0] > kept[-1]
        assert found[f"{name}, span 5"]["tokens_per_second"] > 0


def test_train(capsys):
    found = results(capsys, "train", "--block", "10", "--repeats", "1")
    assert {"cpp_vs_transformer", "all-attention_vs_transformer"} < set(found["ratio"])
    assert min(found["ratio"].values()) > 0 and "transformer_vs_stock" in found["ratio"]


def test_memory(capsys, monkeypatch):
    monkeypatch.setattr(buffers, "CHUNK", 4096)  # less than a model of this size needs
    found = results(capsys, "memory", "--block", "60", "--batch-size", "16")
    peaks = found["peak_bytes"]
    assert peaks["cpp, recomputing"] < peaks["cpp"] < peaks["reference"]
    assert peaks["transformer, recomputing"] < peaks["transformer"]
    assert found["ratio"]["cpp_vs_transformer"] == round(peaks["cpp"] / peaks["transformer"], 4)


def test_peak_bytes():
    """The peak, not the sum of all allocations."""

    def function():
        x = torch.ones(1000)
        y = x + 1
        del x
        return y + 1

    assert peak_bytes(function, "cpu") == pytest.approx(8000, abs=64)


def test_train_stops_if_the_step_loops_differ(capsys, monkeypatch):
    build_model = train.models.build_model

    def build_with_wrong_fast_loop(*args, **options):
        model = build_model(*args, **options)
        run_block = model.run_block

        def wrong_run_block(x_TBD, state):
            out_TBD, state = run_block(x_TBD, state)
            return (1.1 * out_TBD if model.options.step_loop == "cpp" else out_TBD), state

        monkeypatch.setattr(model, "run_block", wrong_run_block)
        return model

    monkeypatch.setattr(train.models, "build_model", build_with_wrong_fast_loop)
    with pytest.raises(RuntimeError, match="the gradients of .*'cpp'.* differ from the reference loop's by 10.0%"):
        results(capsys, "train", "--block", "10", "--repeats", "1")


def test_saved_bytes():
    """Each tensor counts once; parameters, and views of them, do not count."""
    x = torch.randn(10, 10, requires_grad=True)
    layer = torch.nn.Linear(10, 10)
    assert saved_bytes(lambda: (x * 2).exp().exp(), layer) == 2 * 400  # each exp keeps its result
    assert saved_bytes(lambda: layer(x), layer) == 400


@pytest.mark.parametrize(
    "words,message",
    [
        ("decode --heads 3", "--heads 3: does not divide --embed-dim 256"),
        ("span --span 0", "--span 0: give 1 or more"),
        ("decode --device foo", "--device foo: unknown"),
        ("decode --device cuda", "--device cuda: torch finds no GPU"),
        (
            "train --only faster",
            "--only 'faster': not measured on cpu; choose from 'reference'",
        ),
        ("bptt --tokens 100", "--tokens 100: is not a multiple of --blocks 32; give one that is"),
        ("bptt --blocks 32 0", "--blocks 0: give 1 or more"),
        ("bptt --out figure.foo", "--out figure.foo: give a name that ends with .png, .pdf or .svg"),
        ("bptt --batch-size 3", "unrecognized arguments: --batch-size 3"),
    ],
)
def test_bad_input(refused, monkeypatch, words, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert message in refused(main, words.split())


def test_only_some_loops(capsys):
    """Without the reference loop, gradients are not checked."""
    sizes = "--layers 1 --embed-dim 16 --heads 2 --ffn-dim 16 --span 4 --block 4 --batch-size 2 --device cpu".split()
    main(["train", *sizes, "--repeats", "1", "--only", "transformer"])
    printed = capsys.readouterr().out
    assert "Gradients are not checked" in printed and "cpp" not in printed
    assert list(json.loads(printed.splitlines()[-1])["tokens_per_second"])[:1] == ["transformer"]


def test_bptt(capsys, tmp_path, monkeypatch):
    built = []
    training_step = bptt.training_step

    def spy(case, args):
        built.append((args.block, args.batch_size))
        return training_step(case, args)

    monkeypatch.setattr(bptt, "training_step", spy)
    figure = tmp_path / "bptt.png"
    sizes = [*SMALL[:-2], "--repeats", "1", "--device", "cpu"]  # (the number of streams follows from --tokens)
    main(["bptt", *sizes, "--blocks", "4", "8", "2", "--tokens", "16", "--out", str(figure)])
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)["milliseconds"]
    assert set(found) == {"Feedback, shared", "Feedback, per-layer", "Transformer"}
    assert all(len(times) == 3 and min(times) > 0 for times in found.values())
    assert set(built) == {(4, 4), (8, 2), (2, 8)} and len(built) == 9
    assert [line.split("  ")[0] for line in lines[1:]] == ["M = 4, 4 streams", "M = 8, 2 streams", "M = 2, 8 streams"]
    assert figure.stat().st_size > 1000
