"""The steps of the quickstart: train on the bytes of real text, evaluate, continue a text and draw, in a few minutes on
a CPU."""

from collections.abc import Iterator

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.quickstart import PROMPT, SETTINGS, options_of
from fb_fairseq.papers.experiments.settings import words
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step
from fb_fairseq.papers.steps.data import preprocess_bytes
from fb_fairseq.papers.steps.options import known, whole_number
from fb_fairseq.papers.steps.training import best, fairseq_train

RUN = "checkpoints"
OPTIONS = {
    **known("updates"),
    "text": (str, "text to train on (default: the source code of the Python standard library)"),
    "minutes": (whole_number, "how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60"),
}


def steps(call: Call) -> Iterator[Step]:
    """The steps of a call."""
    data, text, minutes = call.at("data"), call.options.get("text"), call.options.get("minutes", 2)
    if minutes not in SETTINGS:
        raise UserError(f"--minutes {minutes}: give 2, 10 or 60")
    setting = SETTINGS[minutes]
    call = Call(call.name, call.out, options=call.options)  # on a CPU even if there is a GPU
    if text:
        yield preprocess_bytes(call, text, [text])
    else:
        command = [*PYTHON, "fb_fairseq.papers.experiments.corpora.standard_library", data]
        yield Step("binarise the text", command, [call.at("data", "dict.txt")], log=call.at("data.log"))
    updates = call.options.get("updates", setting["updates"])
    yield fairseq_train(call, RUN, "data", options_of(setting), updates, -(-updates // 5), 1)
    path, evaluation = best(call, RUN), call.at("eval.log")
    options = {"task": "streaming_lm", "gen_subset": "test", "valid_streams": 32, "tokens_per_sample": 32, "path": path}
    command = ["fairseq-eval-lm", data, "--user-dir", "fb_fairseq", *words(options), *call.cpu]
    yield Step("evaluate on the test split", command, [evaluation], log=evaluation)
    sample, figure, bits = call.at("sample.txt"), call.at("quickstart.png"), call.at("bits.txt")
    command = [*PYTHON, "fb_fairseq", "generate", "--path", path, "--data", data, "--prompt", PROMPT]
    yield Step(
        "continue a text", [*command, "--length", 260, "--seed", 1, *call.cpu], [sample], output=sample, shown=True
    )
    command = [*PYTHON, "fb_fairseq.papers.results.bits", evaluation, call.at("data.log")]
    yield Step("bits per byte", command, [bits], output=bits, shown=True)
    command = [*PYTHON, "fb_fairseq", "plot", "--curves", call.at(f"{RUN}.log"), "--metric", "bpb"]
    command += ["--title", "Feedback Transformer on bytes", "--layer-weights", path, "--out", figure]
    yield Step("draw the figure", command, [figure])


RECIPE = Recipe(
    "train on the bytes of real text, evaluate, generate and draw, in a few minutes on a CPU",
    steps,
    OPTIONS,
    sizes="one",
    variant="minutes",
    extra="",
)
