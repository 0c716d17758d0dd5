"""The steps of the quickstart: train on the bytes of real text, evaluate, continue a text and draw, in a few minutes on
a CPU.
"""

import os
from collections.abc import Iterator

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.quickstart import PROMPT, RUN, SETTINGS
from fb_fairseq.papers.steps import PYTHON, Call, Recipe, Step, language_modeling
from fb_fairseq.papers.steps.data import preprocess_bytes
from fb_fairseq.papers.steps.options import known
from fb_fairseq.papers.steps.training import best

LEAST = 1000  # bytes of a text: enough for all streams in validation
OPTIONS = {
    **known("updates"),
    "text": (str, "text to train on (default: the source code of the Python standard library)"),
    "minutes": (whole_number, "how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60"),
}


def steps(call: Call) -> Iterator[Step]:
    """The steps of a call."""
    text = call.options.get("text")
    minutes = call.options.get("minutes", 2)
    log = call.at("data.log")
    if minutes not in SETTINGS:
        raise UserError(f"--minutes {minutes}: give 2, 10 or 60")
    call = Call(call.name, call.out, options=call.given("updates"))  # on a CPU even if there is a GPU
    if text:
        if os.path.isfile(text) and os.path.getsize(text) < LEAST:
            raise UserError(f"--text {text}: has fewer than {LEAST:,} bytes; give a longer text")
        yield preprocess_bytes(call, text, [text])
    else:
        command = [*PYTHON, "fb_fairseq.papers.experiments.corpora.standard_library", call.at("data")]
        yield Step("binarise the text", command, [call.at("data", "dict.txt")], log=log)
    for run in language_modeling.runs_of(SETTINGS[minutes], call):
        yield from language_modeling.trained(run, call)
        yield language_modeling.evaluation(run, call, RUN, "test")
        yield language_modeling.continued(run, call, PROMPT)
    bits = call.at("bits.txt")
    figure = call.at("quickstart.png")
    command = [*PYTHON, "fb_fairseq.papers.results.bits", call.at(f"{RUN}.test.eval"), log]
    yield Step("bits per byte", command, [bits], output=bits, shown=True)
    command = [*PYTHON, "fb_fairseq", "plot", "--curves", call.at(f"{RUN}.log"), "--metric", "bpb"]
    command += ["--title", "Feedback Transformer on bytes", "--layer-weights", best(call, RUN), "--out", figure]
    yield Step("draw the figure", command, [figure])


RECIPE = Recipe(
    "train on the bytes of real text, evaluate, generate and draw, in a few minutes on a CPU",
    steps,
    OPTIONS,
    sizes="one",
    variant="minutes",
    extra="",
    told=True,
)
