"""``benchmark bptt``: milliseconds of each model and block length, a figure."""

import json

from fb_fairseq.papers.benchmark import bptt
from fb_fairseq.papers.benchmark.command import main

SMALL = "--layers 2 --embed-dim 16 --heads 2 --ffn-dim 16 --span 20 --repeats 1 --device cpu".split()


def test_bptt(capsys, tmp_path, torch_threads, monkeypatch):
    built = []
    training_step = bptt.training_step

    def spy(case, args):
        built.append((args.block, args.batch_size))
        return training_step(case, args)

    monkeypatch.setattr(bptt, "training_step", spy)
    figure = tmp_path / "bptt.png"
    main(["bptt", *SMALL, "--blocks", "4", "8", "2", "--tokens", "16", "--out", str(figure)])
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)["milliseconds"]
    assert set(found) == {"Feedback, shared", "Feedback, per-layer", "Transformer"}
    assert all(len(times) == 3 and min(times) > 0 for times in found.values())
    assert set(built) == {(4, 4), (8, 2), (2, 8)} and len(built) == 9
    assert [line.split("  ")[0] for line in lines[1:]] == ["M = 4, 4 streams", "M = 8, 2 streams", "M = 2, 8 streams"]
    assert figure.stat().st_size > 1000
