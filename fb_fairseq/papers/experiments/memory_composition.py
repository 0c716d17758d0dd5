"""Memory compositions (v1 Table 5, v3 Figures 5 and 8) on the blocked random walk and on character-level PTB."""

import os
from typing import List, Optional, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments.char_ptb import CHAR_PTB
from fb_fairseq.papers.runner.command import find
from fb_fairseq.papers.runner.options import RecipeParser, add_numbers, add_scale, number_list, output_folder
from fb_fairseq.papers.runner.session import find_data, new_shell, output
from fb_fairseq.papers.runner.shell import Shell

PAPERS_LAYERS = 6  # of v3 Table 9's setting for PTB


class MemoryComposition:
    """The recipe: a sweep of the walk, and then PTB, if it is given."""

    name = "memory_composition"
    summary = "which layers the memory combines, on the walk and on PTB (v1 Table 5, v3 Figures 5 and 8)"

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        corpus = "the folder of PTB's word-level files; with --small it may be left out, for the walk only"
        parser = RecipeParser(self.name, corpus, description=self.summary)
        add_scale(parser, "about two hours on one core")
        parser.add_argument("--out", metavar="DIR", help="output folder (default: in runs/)")
        text = "seeds (default: 1 to 3 for the walk, 1 for PTB)"
        parser.add_argument("--seeds", type=number_list, metavar='"N …"', help=text)
        add_numbers(
            parser,
            layers="number of layers (default: 3 with --small, else 6)",
            jobs="number of parallel runs (default: 1)",
            walk_updates="of training on the walk",
            updates="of training on PTB",
            finetune_updates="of fine-tuning on PTB",
        )
        return parser

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Run both recipes, and draw the figure.

        Raises:
            UserError: there is a mistake in the command line or in the data, or a run has failed.
        """
        args = self.parser().parse(argv)
        shell = shell or new_shell(args.print)
        small = bool(args.small)
        layers = args.layers or (3 if small else PAPERS_LAYERS)
        if not small and layers != PAPERS_LAYERS:
            raise UserError(f"--layers {layers}: the papers' setting for PTB has {PAPERS_LAYERS}; use it, or --small")
        source = "" if small and args.data is None else find_data(shell, args.data, True, "PTB")
        names = [os.path.join(source, f"ptb.train.txt{end}") for end in ("", ".gz")]
        if (
            source and not shell.printing and not any(map(os.path.isfile, names))
        ):  # (the walks, which take long, come first)
            raise UserError(
                f"PTB {source}: no ptb.train.txt or ptb.train.txt.gz in this folder; give the folder of PTB's files"
            )
        out = output_folder(args.out, self.name + ("-small" if small else ""), shell)
        models = ["weighted", "average", "same-and-lower", "relative_transformer_lm"]
        models += [f"layer{layer}" for layer in range(layers + 1)]
        common = ["--small" if small else "--full", *(["--print"] if shell.printing else [])]
        common += ["--jobs", args.jobs or 1]
        with output(shell, self.name, out):
            walk = ["--sweep", "--depths", layers, "--models", " ".join(models), "--out", os.path.join(out, "walk")]
            walk += _given("--updates", args.walk_updates) + _given("--seeds", args.seeds)
            find("blocked_random_walk").main(list(map(str, [*common, *walk])), shell)
            if source:
                if small:
                    common += ["--layers", layers]
                else:
                    models[3] = "relative_transformer_lm_char_ptb"
                ptb = [source, "--steps", "prepare train finetune evaluate", "--models", " ".join(models)]
                ptb += ["--out", os.path.join(out, "char_ptb"), *_given("--updates", args.updates)]
                ptb += _given("--finetune-updates", args.finetune_updates) + _given("--seeds", args.seeds)
                CHAR_PTB.main(list(map(str, [*common, *ptb])), shell)
            shell.comment("draw the comparison")
            figure = "fb_fairseq.papers.experiments.figures.memory_composition"
            shell.run("python", "-m", figure, out, layers)


def _given(option: str, value) -> List:
    """The option with its value, if it has one; a list is one word."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return [option, value] if value else []


MEMORY_COMPOSITION = MemoryComposition()
