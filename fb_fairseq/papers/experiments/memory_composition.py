"""Memory compositions (v1 Table 5, v3 Figures 5 and 8) on the blocked random walk and on character-level PTB."""

import os
from collections.abc import Iterator

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.char_ptb import CHAR_PTB
from fb_fairseq.papers.runner.command import find
from fb_fairseq.papers.runner.data import first_file
from fb_fairseq.papers.runner.options import RecipeParser, number_list
from fb_fairseq.papers.runner.settings import words
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.sweep import Call, Experiment, Run

PAPERS_LAYERS = 6  # of v3 Table 9's setting for PTB


class MemoryComposition(Experiment):
    """The recipe: a sweep of the walk, and then PTB, if it is given."""

    name = "memory_composition"
    summary = "which layers the memory combines, on the walk and on PTB (v1 Table 5, v3 Figures 5 and 8)"
    corpus = "the folder of PTB's word-level files; with --small it may be left out, for the walk only"
    extra = ""
    small, full = dict(layers=3), dict(layers=PAPERS_LAYERS)

    def add_options(self, parser: RecipeParser) -> None:
        text = "seeds (default: 1 to 3 for the walk, 1 for PTB)"
        parser.add_argument("--seeds", type=number_list, metavar='"N …"', help=text)
        parser.add_numbers(
            layers="number of layers (default: 3 with --small, else 6)",
            jobs="number of parallel runs (default: 1)",
            walk_updates="of training on the walk",
            updates="of training on PTB",
            finetune_updates="of fine-tuning on PTB",
        )

    def runs(self, call: Call) -> Iterator[Run]:
        """The two recipes, with the options of their command lines."""
        args, small = call.args, call.small
        layers = args.layers or call.setting["layers"]
        if not small and layers != PAPERS_LAYERS:
            raise UserError(f"--layers {layers}: the papers' setting for PTB has {PAPERS_LAYERS}; use it, or --small")
        source = call.shell.data(args.data, True, "PTB") if args.data or not small else ""
        if source:  # (the walks, which take long, come first)
            names = ("ptb.train.txt", "ptb.train.txt.gz")
            first_file(call.shell, source, *names, wanted="the folder of PTB's files", what="PTB")
        seeds = " ".join(map(str, args.seeds or [])) or None
        common = dict(small=small, full=not small, jobs=args.jobs or 1, seeds=seeds)

        def models(transformer: str) -> str:
            lower = (f"layer{n}" for n in range(layers + 1))
            return " ".join(["weighted", "average", "same-and-lower", transformer, *lower])

        walk, ptb = (os.path.join(call.out, name) for name in ("walk", "char_ptb"))
        names = models("relative_transformer_lm")
        options = dict(sweep=True, depths=layers, models=names, out=walk, updates=args.walk_updates)
        yield Run(walk, dict(recipe=find("blocked_random_walk"), layers=layers), {**common, **options})
        if source:
            names = models("relative_transformer_lm" if small else "relative_transformer_lm_char_ptb")
            options = dict(steps="prepare train finetune evaluate", models=names, out=ptb, updates=args.updates)
            options.update(layers=layers if small else None, finetune_updates=args.finetune_updates)
            yield Run(ptb, dict(recipe=CHAR_PTB), {**common, **options}, [source])

    def run(self, call: Call, shell: Shell, run: Run) -> None:
        """Run one of the recipes."""
        run.values["recipe"].main([*words(run.options), *run.extra], shell)

    def finish(self, call: Call) -> None:
        call.shell.comment("draw the comparison")
        figure = "fb_fairseq.papers.experiments.figures.memory_composition"
        call.shell.run("python", "-m", figure, call.out, call.runs[0].values["layers"])


MEMORY_COMPOSITION = MemoryComposition()
