"""Check and measure everything on a GPU, and write one page about it; see gpu.sh.

    python examples/benchmark/gpu.py [--minutes 8] [--out runs/gpu] [--cpu]

Each measurement runs in a process of its own, so that one that fails does not take the others with it. Needs torch
only; without fairseq the trainings are skipped.
"""

import argparse
import datetime
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from measuring import (  # noqa: E402
    REPOSITORY,
    Measurement,
    Result,
    Running,
    benchmark,
    commit,
    parse,
    typed,
)

from fb_fairseq.hardware import hardware  # noqa: E402

RED, PLAIN = "\033[31m", "\033[0m"

TINY = dict(layers=2, embed_dim=32, heads=2, ffn_dim=64, span=16, batch_size=4, block=8)
SIZES = {  # of the papers: v3 Table 9; and that of Table 5's language models
    "random walk": dict(layers=4, embed_dim=256, heads=4, ffn_dim=1024, span=100, batch_size=512, block=64),
    "char-PTB": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=64, block=128),
    "char-PTB, 512 streams": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=512, block=64),
    "width 1024": dict(layers=8, embed_dim=1024, heads=8, ffn_dim=4096, span=512, batch_size=32, block=64),
}
TRAININGS = {
    "fp32": [],
    "--amp": ["--amp"],
    "--fp16": ["--fp16"],
    "--bf16": ["--bf16"],
    "--update-freq 2": ["--update-freq", "2"],
}


def measurements(cpu: bool, folder: Path) -> list[Measurement]:
    """All of them, the most important first: what is right, then the loops that matter at the papers' sizes in bf16."""
    device = ["--device", "cpu" if cpu else "cuda"]
    quick = ["--repeats", "1" if cpu else "5"]
    steps = ["--steps", "20" if cpu else "500", "--storage", "keys-values"]
    loops = ["--only", "torch"] if cpu else ["--only", "triton"]
    sizes, half = ({"tiny": TINY}, "fp32") if cpu else (SIZES, "bf16")
    main_size = TINY if cpu else SIZES["char-PTB"]
    fairseq = importlib.util.find_spec("fairseq") is not None
    found = [Measurement("Environment", [sys.executable, "-m", "fb_fairseq", "env"])]
    if shutil.which("nvidia-smi") and not cpu:
        found.append(Measurement("Driver", ["nvidia-smi"]))
    if not cpu:
        found.append(compile_kernels(list(SIZES.values())))
    for dtype in ("fp32", "bf16"):
        title = f"Gradients of every loop, and a tiny speed test, {dtype}"
        found.append(benchmark("train", title, TINY, "--dtype", dtype, *quick, *device))
    if importlib.util.find_spec("pytest"):
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fast"]
        if importlib.util.find_spec("xdist"):
            tests += ["-n", str(min(8, os.cpu_count() or 1))]
        files = ["tests/ops/test_buffers.py"] if cpu else ["tests/ops", "tests/modules"]
        found.append(Measurement("Tests of the operators and modules", [*tests, *files]))
        if not cpu:
            found.append(Measurement("Tests on the GPU", [*tests, "tests/gpu"]))
    for name, size in sizes.items():
        found.append(benchmark("train", f"Training, {name}, {half}", size, "--dtype", half, *quick, *loops, *device))
    for streams in (1, 64) if not cpu else (4,):
        title = f"Decoding, {'tiny' if cpu else 'char-PTB'}, {half}, {streams} streams"
        size = {**main_size, "batch_size": streams}
        found.append(benchmark("decode", title, size, "--dtype", half, *steps, *device))
    if fairseq:
        found += trainings(cpu, folder)
    title = f"Memory of training, {'tiny' if cpu else 'char-PTB'}, {half}"
    found.append(
        benchmark(
            "memory",
            title,
            main_size,
            "--dtype",
            half,
            *(["--only", "triton", "torch"] if not cpu else []),
            *device,
        )
    )
    if cpu:
        return found
    # If there is time left.
    if shutil.which("compute-sanitizer"):
        tiny = benchmark("train", "compute-sanitizer, tiny", TINY, "--repeats", "1", *device)
        found.append(tiny._replace(command=["compute-sanitizer", "--error-exitcode", "9", *tiny.command]))
    for name, size in SIZES.items():
        found.append(benchmark("train", f"Training, {name}, fp32", size, "--dtype", "fp32", *quick, *loops, *device))
    found.append(benchmark("bptt", "Longer blocks, as many tokens (v1 Figure 9)", main_size, *quick, *device))
    if fairseq:
        found.append(Measurement("Table 5", [sys.executable, "-m", "fb_fairseq", "benchmark", "table5", *device]))
    return found


def compile_kernels(sizes: list[dict[str, int]]) -> Measurement:
    """Run one block of each size in processes of their own, all at once: so kernels compile in parallel, to Triton's
    cache."""
    commands = []
    for size in sizes:
        command = benchmark("train", "", {**size, "block": 2}, "--dtype", "bf16", "--repeats", "1").command
        commands.append(shlex.join([*command, "--device", "cuda", "--only", "triton"]) + " >/dev/null & ")
    return Measurement("Compilation of the Triton kernels", ["bash", "-c", "".join(commands) + "wait"])


def trainings(cpu: bool, folder: Path) -> list[Measurement]:
    """50 updates of ``fairseq-train`` in each precision, and with two GPUs in both kinds of distributed training."""
    text, data = folder / "text.txt", folder / "data"
    text.write_text("".join(path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob("fb_fairseq/**/*.py"))))
    prepare = [sys.executable, "-m", "fb_fairseq", "preprocess-bytes", "--text", str(text), "--split", "90,5,5"]
    train = [os.path.join(os.path.dirname(sys.executable), "fairseq-train"), str(data)]
    if not os.path.exists(train[0]):
        train[:1] = [sys.executable, "-m", "fairseq_cli.train"]
    train += "--user-dir fb_fairseq --task streaming_lm --criterion lm_loss".split()
    train += "--decoder-normalize-before --clip-norm 0.1 --optimizer adam --lr 0.001 --no-save".split()
    train += "--disable-validation --log-format simple --log-interval 10 --dropout 0.1 --attention-dropout 0.1".split()
    small = "--decoder-layers 2 --decoder-embed-dim 32 --decoder-attention-heads 2 --attention-span 16 --batch-size 4 "
    small += "--tokens-per-sample 16 --max-update 5"
    char_ptb = "--decoder-layers 6 --decoder-embed-dim 384 --decoder-ffn-embed-dim 1536 --decoder-attention-heads 4 "
    char_ptb += "--attention-span 512 --batch-size 128 --tokens-per-sample 64 --max-update 60 --bf16"
    middle = (
        "--decoder-layers 4 --decoder-embed-dim 256 --decoder-attention-heads 4 --attention-span 128 --batch-size 8 "
    )
    middle += "--tokens-per-sample 16 --max-update 50"
    feedback, transformer = (["--arch", f"{name}_transformer_lm"] for name in ("feedback", "relative"))
    found = [Measurement("Data for the trainings", [*prepare, "--destdir", str(data)])]
    if not cpu:
        for loop in ("triton", "auto"):
            command = [*train, *feedback, *char_ptb.split(), "--step-loop", loop]
            found.append(Measurement(f"fairseq-train, char-PTB size, --step-loop {loop}", command, logs=True))
        command = [*train, *transformer, *char_ptb.split()]
        found.append(Measurement("fairseq-train, char-PTB size, Transformer", command, logs=True))
    train += [*feedback, *(small if cpu else middle).split()]
    chosen = {name: TRAININGS[name] for name in ("fp32", "--amp")} if cpu else TRAININGS
    found += [
        Measurement(f"fairseq-train, {name}", [*train, *more, *(["--cpu"] if cpu else [])], logs=True)
        for name, more in chosen.items()
    ]
    if not cpu and torch.cuda.device_count() > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        for backend in ("legacy_ddp", "pytorch_ddp"):
            command = [*launcher, *(["-m", "fairseq_cli.train"] + train[train.index(str(data)) :])]
            found.append(Measurement(f"Two GPUs, {backend}", [*command, "--ddp-backend", backend], logs=True))
    return found


def page(device: str, results: list[Result], skipped: list[Measurement], minutes: float) -> str:
    """The page in Markdown."""
    parts = [
        f"# {device}, {datetime.date.today()}",
        f"Written by `bash examples/benchmark/gpu.sh --minutes {minutes:g}`; torch {torch.__version__}, CUDA "
        f"{torch.version.cuda}, commit {commit()}.",
        "## Problems and fallbacks",
    ]
    lines = []
    for result in results:
        lines += [f"- **{result.measurement.title}: {result.problem}**"] if result.problem else []
        lines += [f"- {result.measurement.title}: {line}" for line in dict.fromkeys(result.fallbacks)]
    lines += [f"- {measurement.title}: not run, the time was up" for measurement in skipped]
    parts.append("\n".join(lines) or "None.")
    for result in results:
        parts += [f"## {result.measurement.title}", f"`{typed(result.measurement.command)}` ({result.seconds:.0f} s)"]
        parts.append(f"```\n{result.shown}\n```")
    return "\n\n".join(parts) + "\n"


def write_json(path: Path, device: str, results: list[Result]) -> None:
    """The benchmarks' JSON lines, each with the measurement's title."""
    with open(path, "w", encoding="utf-8") as file:
        for result in results:
            found = [line for line in result.output.splitlines() if line.startswith('{"') and line.endswith("}")]
            values = json.loads(found[-1]) if found else {}
            about = {"title": result.measurement.title, "device": device, "date": str(datetime.date.today())}
            about["problem"], about["fallbacks"] = result.problem, result.fallbacks
            file.write(json.dumps({**about, **values}) + "\n")


def main() -> int:
    """Run everything. Returns the exit status: 1 if a measurement has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args = parse(parser, "runs/gpu")
    device = hardware("cpu" if args.cpu else "cuda")
    end = time.monotonic() + 60 * args.minutes
    waiting, results = measurements(args.cpu, args.out), []
    name = f"{datetime.date.today()}-{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}"
    while waiting and time.monotonic() < end:
        measurement = waiting.pop(0)
        print(f"== {measurement.title}", flush=True)
        results.append(Running(measurement).wait(args.out, end - time.monotonic()))
        print(results[-1].shown[-3000:], flush=True)
        problem = [results[-1].problem] if results[-1].problem else []
        for line in problem + results[-1].fallbacks:
            print(f"{RED}{line}{PLAIN}", flush=True)
        # Written after each measurement, so that nothing is lost.
        (args.out / f"{name}.md").write_text(page(device, results, waiting, args.minutes), encoding="utf-8")
        write_json(args.out / f"{name}.jsonl", device, results)
    print(f"\nPage: {args.out / f'{name}.md'}")
    return int(any(result.problem for result in results))


if __name__ == "__main__":
    sys.exit(main())
