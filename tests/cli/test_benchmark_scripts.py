"""The scripts in examples/benchmark that compare with other programs, or vary the sizes."""

import json

import pytest

from tests.conftest import REPOSITORY

BENCHMARK = REPOSITORY / "examples/benchmark"
HF, FAIRSEQ = "transformers' generate", "fairseq's SequenceGenerator"
GROWTH = f"""
import runpy, sys
growth = runpy.run_path({str(BENCHMARK / "growth.py")!r})
growth["SIZES"].update(span=[2, 3], layers=[1, 2], embed_dim=[8], batch_size=[1])
growth["main"]()
"""
SMALL = "--layers 1 --embed-dim 16 --heads 2 --ffn-dim 24 --block 4 --span 5 --batch-size 2 --repeats 1".split()


def test_generation(commands):
    """transformers and fairseq write the same texts."""
    pytest.importorskip("transformers")
    script = ["python", BENCHMARK / "generation.py", "--length", 6, "--repeats", 1]
    done = commands.run(*script, "--batch-size", 1, 3)
    assert done.status == 0, done.errors
    *lines, last = done.out
    results = json.loads(last)
    expected = {f"{name}, batch of {batch_size}" for name in (HF, FAIRSEQ) for batch_size in (1, 3)}
    assert expected <= set(results["results"]) and len(lines) == 1 + len(results["results"])
    assert all(figures["tokens_per_second"] > 0 for figures in results["results"].values())
    assert results["setting"]["length"] == 6 and results["setting"]["hardware"]


def test_growth(commands, tmp_path):
    """Every size once, also after an interruption; a figure."""
    out = tmp_path / "growth.jsonl"
    figure = tmp_path / "growth.png"
    script = ["python", "-c", GROWTH, "--out", out, *SMALL]
    done = commands.run(*script)
    assert done.status == 0, done.errors
    lines = out.read_text().splitlines()
    settings = [json.loads(line)["setting"] for line in lines]
    sizes = [("span", 2), ("span", 3), ("layers", 1), ("layers", 2), ("embed_dim", 8), ("batch_size", 1)]
    assert [(s["varies"], s[s["varies"]]) for s in settings] == sizes
    assert settings[4]["ffn_dim"] == 32
    assert set(json.loads(lines[0])["tokens_per_second"]) == {"cpp", "reference", "transformer"}
    out.write_text("\n".join(lines[:3]) + "\n")
    done = commands.run(*script, "--figure", figure)
    assert done.status == 0, done.errors
    assert len(done.out) == 3 and len(out.read_text().splitlines()) == 6 and figure.stat().st_size > 1000
