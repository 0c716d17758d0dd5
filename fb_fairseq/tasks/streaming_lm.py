"""``--task streaming_lm``: language modeling on endless streams, with the memory carried from block to block."""

import logging
import os
from dataclasses import dataclass
from typing import Any, Optional

from fairseq import utils
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import II

from fb_fairseq.byte_codec import is_byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.config import option
from fb_fairseq.optim.master_copies import clamp_master_copies
from fb_fairseq.streams.bptt_warmup import BlockLengths
from fb_fairseq.streams.iterator import StreamBatchIterator
from fb_fairseq.streams.labels import INPUT, LABEL, LabelledCorpus, file_prefix, load_dictionary
from fb_fairseq.streams.layout import Corpus, StreamDataset, StreamLayout
from fb_fairseq.streams.memory_files import TYPES, MemoryFiles
from fb_fairseq.tasks.byte_bpe import ByteCodec, LineByteCodec

logger = logging.getLogger(__name__)


@dataclass
class StreamingLMConfig(FairseqDataclass):
    data: Optional[str] = option(None, "folder(s) of binarised data and dict.txt; a:b are shards, one an epoch")
    tokens_per_sample: int = option(128, "steps of a block: how far gradients reach back (M in the papers)")
    bptt_warmup_tokens: int = option(
        0,
        "BPTT warm-up: steps of the first blocks, --tokens-per-sample divided by 2, 4, 8, …; an iteration keeps its "
        "number of tokens, with as many times more streams",
    )
    bptt_warmup_iterations: int = option(
        0, "BPTT warm-up: after how many iterations (updates, from the run's first epoch on) blocks double in length"
    )
    labels: bool = option(
        False,
        "learn the label of each symbol instead of the next symbol: the data have an input and a label stream "
        "(fairseq-preprocess --source-lang input --target-lang label); the label _ counts for nothing",
    )
    sample_break_mode: ChoiceEnum(["none", "eos"]) = option(
        "none", "none: streams. eos: each line (document) of the data is a sample, for fairseq-generate: a prompt"
    )
    valid_streams: int = option(
        8, "streams of validation and evaluation over all processes; each starts with an empty memory"
    )
    save_stream_memory: ChoiceEnum([*TYPES, "none"]) = option(
        "exact",
        "how to save the streams' memory beside checkpoint_last.pt. exact: a resumed run equals an uninterrupted one. "
        "bfloat16, float16: half of the disk, and a small difference after a resume. none: nothing, and after a resume "
        "in mid-epoch each stream starts with an empty memory",
    )
    # fairseq's own options that streams depend on, or that have no meaning on them
    update_freq: Any = II("optimization.update_freq")
    skip_remainder_batch: Any = II("optimization.skip_remainder_batch")
    train_subset: Any = II("dataset.train_subset")
    batch_size: Any = II("dataset.batch_size")
    batch_size_valid: Any = II("dataset.batch_size_valid")
    max_tokens: Any = II("dataset.max_tokens")
    max_tokens_valid: Any = II("dataset.max_tokens_valid")
    dataset_impl: Any = II("dataset.dataset_impl")


@register_task("streaming_lm", dataclass=StreamingLMConfig)
class StreamingLMTask(LanguageModelingTask):
    """The corpus is cut into ``--batch-size`` streams a process (times ``--update-freq``), read side by side.

    Prompts, dictionaries and inference are ``language_modeling``'s.
    """

    endless_streams = True  # models without a limit of positions are asked for

    def __init__(self, cfg: StreamingLMConfig, dictionary: Dictionary, output_dictionary: Optional[Dictionary] = None):
        super().__init__(cfg, dictionary, output_dictionary, targets=["future"])
        self.byte_data = is_byte_dictionary(dictionary)
        self.restored_from = ""
        self.memory_files = MemoryFiles(self, cfg.save_stream_memory)

    @classmethod
    def setup_task(cls, cfg: StreamingLMConfig, **kwargs):
        for name in ("tokens_per_sample", "valid_streams"):
            if getattr(cfg, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(cfg, name)}: give 1 or more")
        BlockLengths.from_options(cfg)  # rather now than after the model is built
        folder = utils.split_paths(cfg.data)[0]
        if cfg.labels:
            dictionaries = [load_dictionary(folder, side) for side in (INPUT, LABEL)]
            logger.info(f"dictionaries: {len(dictionaries[0])} types of inputs, {len(dictionaries[1])} of labels")
            if str(cfg.sample_break_mode) == "eos":
                raise UserError("--sample-break-mode eos: is for prompts, which --labels does not have; leave it out")
            return cls(cfg, *dictionaries)
        path = os.path.join(folder, "dict.txt")
        if not os.path.isfile(path):
            raise UserError(
                f"{path}: no such file; give the folder that fairseq-preprocess or fb_fairseq.commands.preprocess_bytes wrote"
            )
        dictionary = Dictionary.load(path)
        logger.info(f"dictionary: {len(dictionary)} types")
        return cls(cfg, dictionary)

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a split; with sharded data ``a:b`` the shard of that epoch.

        Raises:
            UserError: the split is missing or empty.
        """
        if self.args.labels:
            sides = [self._indexed_dataset(file_prefix(split, side), epoch) for side in (INPUT, LABEL)]
            corpora = (Corpus(side, self.dictionary.eos()) for side in sides)
            corpus = LabelledCorpus(self._path(split, epoch), *corpora, self.target_dictionary)
            self._take(StreamDataset(split, corpus, self.dictionary.pad()))
            return
        dataset = self._indexed_dataset(split, epoch, combine)
        if str(self.args.sample_break_mode) == "eos":
            self.datasets[split] = self.build_dataset_for_inference(dataset, dataset.sizes)
        else:
            self._take(StreamDataset(split, Corpus(dataset, self.dictionary.eos()), self.dictionary.pad()))

    def _take(self, dataset: StreamDataset) -> None:
        self.datasets[dataset.split] = dataset
        if dataset.split != self.args.train_subset:  # rather now than after an epoch of training
            self._arrange_for_evaluation(dataset, 1)

    def _path(self, split: str, epoch: int) -> str:
        """Of a split, or of its shard of that epoch."""
        folders = utils.split_paths(self.args.data)
        return os.path.join(folders[(epoch - 1) % len(folders)], split)

    def _indexed_dataset(self, split, epoch, combine=False):
        """fairseq's dataset of a split, or of its shard of that epoch."""
        path = self._path(split, epoch)

        def refuse(why):
            another = "prepare it, or name another one (--train-subset, --valid-subset, --gen-subset)"
            raise UserError(f"{path}: the split is {why}; {another}")

        if os.path.isfile(f"{path}.bin") and os.path.getsize(f"{path}.bin") == 0:
            refuse("empty")  # fairseq cannot map an empty file
        dataset = data_utils.load_indexed_dataset(path, self.dictionary, self.args.dataset_impl, combine=combine)
        if dataset is None:
            refuse("missing")
        if not dataset.sizes.sum():
            refuse("empty")
        return dataset

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Batches of streams (see ``StreamLayout``), or of prompts for inference."""
        if isinstance(dataset, StreamDataset):
            return self._stream_iterator(dataset, *args, **kwargs)
        return super().get_batch_iterator(dataset, *args, **kwargs)

    def _stream_iterator(
        self, dataset, num_shards=1, shard_id=0, num_workers=0, epoch=1, data_buffer_size=0, seed=1, **_
    ):
        """Training streams for the training split, else ``--valid-streams`` of them."""
        refuse_meaningless(self.args)
        if dataset.split == self.args.train_subset:
            if self.args.batch_size_valid not in (None, self.args.batch_size):
                raise UserError("--batch-size-valid has no meaning on streams: give --valid-streams")
            if not self.args.batch_size:
                raise UserError("--batch-size: give the number of streams of each process")
            option_name = "--batch-size x processes x --update-freq"
            arranged = dataset.arrange(self._training_layout(dataset.corpus, num_shards, epoch), option_name)
        else:
            arranged = self._arrange_for_evaluation(dataset, num_shards)
        if num_workers > 1:
            logger.info(f"--num-workers {num_workers} has no effect: streams are slices of a mapped file, read here")
        return StreamBatchIterator(
            arranged,
            memory_files=self.memory_files,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=0,
            epoch=epoch,
            buffer_size=data_buffer_size,
            seed=seed,
        )

    def _training_layout(self, corpus, num_shards, epoch) -> StreamLayout:
        """How this process's epoch is served; the BPTT warm-up counts the iterations of all epochs before."""
        lengths = BlockLengths.from_options(self.args)
        frequencies = self.args.update_freq
        sharded = self.has_sharded_data(self.args.train_subset)

        def layout(corpus, epoch, start):
            groups = num_shards * frequencies[min(epoch, len(frequencies)) - 1]
            return self._layout(corpus, self.args.batch_size * groups, groups, lengths, start)

        start = 0
        for earlier in range(1, epoch):
            if lengths.over(start):
                break
            # A variable holds the dataset: fairseq unmaps the file, and with it the sizes, when it is gone.
            shard = self._indexed_dataset(self._train_files(), earlier, combine=True) if sharded else None
            earlier_corpus = Corpus(shard, self.dictionary.eos()) if sharded else corpus
            start += len(layout(earlier_corpus, earlier, start).turns)
        chosen = layout(corpus, epoch, start)
        if chosen.parts > 1:
            blocks = [lengths.at(start + turn) for turn in range(len(chosen.turns))]
            counts = ", ".join(f"{blocks.count(block)} with blocks of {block} steps" for block in dict.fromkeys(blocks))
            logger.info(
                f"BPTT warm-up: epoch {epoch} has {chosen.streams} streams and {len(blocks)} iterations: {counts}"
            )
        return chosen

    def _layout(self, corpus, *arguments) -> StreamLayout:
        """With labels, streams of whole sequences."""
        return StreamLayout(len(corpus), *arguments, ends=corpus.ends if self.args.labels else None)

    def _train_files(self) -> str:
        return file_prefix(self.args.train_subset, INPUT) if self.args.labels else self.args.train_subset

    def _arrange_for_evaluation(self, dataset, num_shards):
        lengths = BlockLengths(self.args.tokens_per_sample)
        layout = self._layout(dataset.corpus, self.args.valid_streams, num_shards, lengths)
        return dataset.arrange(layout, "--valid-streams")

    def eval_lm_dataloader(self, dataset, batch_size=None, context_window=0, max_tokens=None, **kwargs):
        """``fairseq-eval-lm``'s batches: those of the trainer's validation."""
        if self.args.labels:
            raise UserError(
                "fairseq-eval-lm scores the next symbol, and this model was trained with --labels; use "
                "python -m fb_fairseq evaluate-labels"
            )
        if context_window:
            raise UserError("--context-window has no meaning on streams: every step sees --attention-span steps back")
        if batch_size:
            raise UserError("--batch-size has no meaning in evaluation on streams: give --valid-streams")
        dataset = StreamDataset("", dataset.corpus, dataset.pad) if dataset.split == self.args.train_subset else dataset
        kwargs.pop("max_positions", None)
        return self.get_batch_iterator(dataset, **kwargs).next_epoch_itr(shuffle=False)

    def optimizer_step(self, optimizer, model, update_num):
        """An update; spans stay in [0, 1], in the fp32 copies of half-precision training too."""
        super().optimizer_step(optimizer, model, update_num)
        if hasattr(model, "clamp_spans"):
            model.clamp_spans()
            clamp_master_copies(optimizer, model.span_parameters())

    def build_generator(self, *args, **kwargs):
        if self.args.labels:
            raise UserError(
                "a model that was trained with --labels generates nothing; use python -m fb_fairseq evaluate-labels"
            )
        return super().build_generator(*args, **kwargs)

    def build_bpe(self, args):
        """``--bpe``; byte data brings its own codec, with escapes, because fairseq's commands work by lines."""
        bpe = super().build_bpe(args)
        return LineByteCodec() if self.byte_data and (bpe is None or isinstance(bpe, ByteCodec)) else bpe

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        """The tokens of prompts.

        Raises:
            UserError: a prompt holds a symbol that is not in the dictionary (``<unk>`` itself is).
        """
        for number, line in enumerate(lines, 1):
            for symbol in encode_fn(line).split():
                if symbol not in self.source_dictionary:
                    raise UserError(
                        f"prompt {number}: {symbol!r} is not in dict.txt; tokenise prompts like the training text, and "
                        f"write {self.source_dictionary.unk_word} for a word that is unknown"
                    )
        return super().get_interactive_tokens_and_lengths(lines, encode_fn)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Go on from prompts; see ``LanguageModelingTask.inference_step``.

        Raises:
            UserError: a sample is a block of a stream, or a prompt does not fit ``--max-len-b``.
        """
        if "place" in sample:
            raise UserError(
                "--sample-break-mode eos is needed with fairseq-generate: each line of the data is a prompt"
            )
        prompt = sample["net_input"]["src_tokens"] if prefix_tokens is None else prefix_tokens
        length = int(prompt.ne(self.dictionary.pad()).sum(1).max()) - int(prefix_tokens is None)
        if hasattr(generator, "max_len_b"):
            room = int(generator.max_len_a * sample["net_input"]["src_tokens"].shape[1] + generator.max_len_b)
            if length >= room:
                raise UserError(
                    f"--max-len-b: {room} tokens are allowed (--max-len-a x prompt + --max-len-b) and a prompt, which "
                    f"counts, has {length}; give more"
                )
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)


def refuse_meaningless(cfg: StreamingLMConfig) -> None:
    """Raise a UserError that names an option which would do nothing, or harm, on streams."""
    instead = "a batch is --batch-size streams of --tokens-per-sample steps"
    if cfg.max_tokens:
        raise UserError(f"--max-tokens has no meaning on streams: {instead}")
    if cfg.max_tokens_valid:
        raise UserError(f"--max-tokens-valid has no meaning on streams: {instead}")
    if cfg.skip_remainder_batch:
        raise UserError("--skip-remainder-batch would leave targets out of every epoch; leave it away")
