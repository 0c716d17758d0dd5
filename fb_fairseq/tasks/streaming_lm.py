"""``--task streaming_lm``: language modeling on parallel streams, with memory carried from block to block."""

import logging
import math
import os

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingTask

from fb_fairseq.byte_codec import is_byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.streams.checkpoints import MemoryFiles
from fb_fairseq.streams.fairseq.corpus import Corpus, Documents, load_corpus
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.fairseq.iterator import StreamBatchIterator
from fb_fairseq.streams.fairseq.labels import INPUT, LABEL, LabelledCorpus, load_dictionary, load_labelled
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from fb_fairseq.symbols import BOS, padding_words
from fb_fairseq.tasks.byte_codecs import ByteCodec, LineByteCodec
from fb_fairseq.tasks.options import (
    StreamingLMConfig,
    check_architecture,
    check_batch_options,
    check_own_options,
    check_scoring_options,
    check_training_options,
    prepare_arguments,
)

logger = logging.getLogger(__name__)
# Advice for a prompt of several lines.
WITH_LINE_ENDS = "use fb-fairseq generate, or the exported model, which continue it, or leave it out"


@register_task("streaming_lm", dataclass=StreamingLMConfig)
class StreamingLMTask(LanguageModelingTask):
    """Language modeling on ``--batch-size`` parallel streams per process (times ``--update-freq``).

    With ``--labels`` the model predicts a label for each symbol instead of the next symbol. Dictionaries, prompts and
    generation are those of fairseq's ``language_modeling``.

    Attributes:
        byte_data: whether the symbols of the data are bytes (see ``fb_fairseq.byte_codec``).
    """

    def __init__(self, cfg: StreamingLMConfig, dictionary: Dictionary, output_dictionary: Dictionary | None = None):
        super().__init__(cfg, dictionary, output_dictionary)
        self.byte_data = is_byte_dictionary(dictionary)
        self.memory_files = MemoryFiles(str(cfg.save_stream_memory))

    prepare_arguments = staticmethod(prepare_arguments)  # see fb_fairseq.patches.command_line

    @classmethod
    def setup_task(cls, cfg: StreamingLMConfig, **kwargs):
        """Check the options, load the dictionaries, and create the task."""
        check_own_options(cfg)
        folder = utils.split_paths(cfg.data)[0]
        if cfg.labels:
            inputs, labels = (load_dictionary(folder, side) for side in (INPUT, LABEL))
            logger.info(f"dictionaries: {len(inputs)} types of inputs, {len(labels)} of labels")
            return cls(cfg, inputs, labels)
        path = os.path.join(folder, "dict.txt")
        if not os.path.isfile(path):
            raise UserError(
                f"{path}: no such file; give a folder that fairseq-preprocess or fb-fairseq preprocess-bytes "
                "has written"
            )
        dictionary = Dictionary.load(path)
        logger.info(f"dictionary: {len(dictionary)} types")
        return cls(cfg, dictionary)

    def build_model(self, cfg, from_checkpoint=False):
        """fairseq's, for models that carry memory."""
        check_architecture(cfg)
        return super().build_model(cfg, from_checkpoint)

    # Data

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a split; of sharded data, the shard of that epoch."""
        if str(self.args.sample_break_mode) == "eos":
            documents = Documents(self._load_corpus(split, epoch, combine))
            self.datasets[split] = self.build_dataset_for_inference(documents, documents.sizes)
            return
        dataset = StreamDataset(split, self._load_corpus(split, epoch, combine), self.dictionary.pad())
        self.datasets[split] = dataset
        if split != self.args.train_subset:  # fail now rather than after an epoch of training
            self._arrange_for_evaluation(dataset, num_shards=1)

    def _load_corpus(self, split: str, epoch: int, combine: bool) -> Corpus | LabelledCorpus:
        """Load the text of a split; of sharded data, that of the epoch's shard. ``combine``: see ``load_corpus``."""
        folders = utils.split_paths(self.args.data)
        path = os.path.join(folders[(epoch - 1) % len(folders)], split)
        impl = self.args.dataset_impl
        if self.args.labels:
            return load_labelled(path, self.dictionary, self.target_dictionary, impl=impl, combine=combine)
        return load_corpus(path, self.dictionary, omit_eos=self.args.omit_eos, impl=impl, combine=combine)

    # Batches

    def train_step(self, sample, model, *args, **kwargs):
        """fairseq's; the model is told before it (see ``CarriesMemory``)."""
        model.before_train_step(sample)
        return super().train_step(sample, model, *args, **kwargs)

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Batches of streams (see ``StreamLayout``), or of prompts for inference."""
        if not isinstance(dataset, StreamDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        if self.args.separate_sequences:
            raise UserError(
                "the model reads each sequence with an empty memory, and streams carry it from one to the next; use "
                "fb-fairseq evaluate-labels"
            )
        check_batch_options(self.args)
        if "grouped_shuffling" not in kwargs:  # which Trainer.get_train_iterator alone gives
            return self._evaluation_iterator(dataset, **kwargs)
        check_training_options(self.args)
        option = "--batch-size x processes x --update-freq"
        layout = self._training_layout(dataset.corpus, kwargs.get("num_shards", 1), kwargs.get("epoch", 1))
        arranged = dataset.arrange(layout, option)
        if len(layout.turns) == 1:
            logger.warning(
                f"{option}: {layout.streams} streams of the {layout.tokens} tokens of the {dataset.split} split are "
                "read in one update, so that no memory is carried; use fewer streams, or more data"
            )
        return self._iterator(arranged, **kwargs)

    def eval_lm_dataloader(self, dataset, batch_size=None, context_window=0, **kwargs):
        """The batches of ``fairseq-eval-lm``, as in validation; ``batch_size`` is the number of streams."""
        if context_window:
            raise UserError("--context-window has no meaning on streams: every step sees --attention-span steps back")
        if batch_size:
            self.args.valid_streams = batch_size
        check_batch_options(self.args)
        check_scoring_options(self.args, kwargs.get("num_shards", 1), kwargs.get("shard_id", 0))
        text = dataset.corpus.dataset
        if any(bool(text[i].eq(self.dictionary.pad()).any()) for i in range(len(text))):  # would shift fairseq's scores
            raise UserError("--gen-subset: the text has the symbol <pad>; use fairseq-validate, which ignores it")
        return self._evaluation_iterator(dataset, **kwargs).next_epoch_itr()  # (streams are never shuffled)

    def _evaluation_iterator(self, dataset: StreamDataset, num_shards=1, **kwargs) -> StreamBatchIterator:
        return self._iterator(self._arrange_for_evaluation(dataset, num_shards), num_shards=num_shards, **kwargs)

    def _iterator(
        self,
        dataset: StreamDataset,
        *,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        **unused,  # fairseq's limits of batches, and the seed of shuffling
    ) -> StreamBatchIterator:
        """An iterator over an arranged dataset; the arguments are those of fairseq's ``get_batch_iterator``."""
        if num_workers > 1:
            logger.info(
                f"--num-workers {num_workers} has no effect: blocks are slices of a memory-mapped file, and are read "
                "in the main process"
            )
        return StreamBatchIterator(
            dataset,
            memory_files=self.memory_files,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=0,
            epoch=epoch,
            buffer_size=data_buffer_size,
        )

    def _training_layout(self, corpus, num_shards: int, epoch: int) -> StreamLayout:
        """The layout of an epoch of training. BPTT warm-up counts the iterations of all epochs before."""
        lengths = BlockLengths.from_options(self.args)
        frequencies = self.args.update_freq
        is_sharded = self.has_sharded_data(self.args.train_subset)

        def plan(text, of_epoch: int, before: int) -> StreamLayout:
            groups = num_shards * frequencies[min(of_epoch, len(frequencies)) - 1]
            return self._layout(text, self.args.batch_size * groups, groups, lengths, start=before)

        start = 0
        for earlier in range(1, epoch):
            if lengths.is_full(start):  # from here on the number of iterations does not matter
                break
            shard = self._load_corpus(self.args.train_subset, earlier, combine=True) if is_sharded else corpus
            start += len(plan(shard, earlier, start).turns)
        chosen = plan(corpus, epoch, start)
        if chosen.parts > 1:
            blocks = [lengths.at(start + turn) for turn in range(len(chosen.turns))]
            counts = ", ".join(f"{blocks.count(block)} with blocks of {block} steps" for block in dict.fromkeys(blocks))
            logger.info(f"BPTT warm-up: epoch {epoch} has {chosen.streams} streams, {len(blocks)} iterations: {counts}")
        return chosen

    def _arrange_for_evaluation(self, dataset: StreamDataset, num_shards: int) -> StreamDataset:
        lengths = BlockLengths(self.args.tokens_per_sample)
        layout = self._layout(dataset.corpus, self.args.valid_streams, num_shards, lengths)
        return dataset.arrange(layout, "--valid-streams")

    def _layout(self, corpus, streams: int, groups: int, lengths: BlockLengths, *, start: int = 0) -> StreamLayout:
        """A layout of a corpus; with labels, its streams consist of whole sequences."""
        ends = corpus.ends if self.args.labels else None
        return StreamLayout(len(corpus), streams, groups, lengths, start=start, ends=ends)

    # Generation

    def build_generator(self, *args, **kwargs):
        """fairseq's generator."""
        if self.args.labels:
            raise UserError("a model of --labels cannot generate text; use fb-fairseq evaluate-labels")
        return super().build_generator(*args, **kwargs)

    def build_bpe(self, args):
        """The codec of ``--bpe``; for byte data a byte codec with escapes, as fairseq's commands work line by line."""
        bpe = super().build_bpe(args)
        return LineByteCodec() if self.byte_data and (bpe is None or isinstance(bpe, ByteCodec)) else bpe

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        """Encode prompts."""
        for number, line in enumerate(lines, 1):
            for symbol in encode_fn(line).split():
                if symbol not in self.source_dictionary:
                    raise UserError(
                        f"prompt {number}: {symbol!r} is not in dict.txt; tokenise prompts like the training text, and "
                        f"write {self.source_dictionary.unk_word} for an unknown word"
                    )
        return super().get_interactive_tokens_and_lengths(lines, encode_fn)

    def build_dataset_for_inference(self, src_tokens, src_lengths, **kwargs):
        """fairseq's, which takes ``</s>`` off both ends of each text, and ``<pad>`` for no token."""
        eos = self.dictionary.eos()
        pad = self.dictionary.pad()
        for number, tokens in enumerate(src_tokens, 1):
            if bool(tokens.eq(pad).any()):
                raise UserError(f"prompt {number}: {self.dictionary.pad_word} in it, which is no word; leave it out")
            if len(tokens) > 1 and eos in (int(tokens[0]), int(tokens[-2])):
                raise UserError(f"prompt {number}: begins or ends with {self.dictionary.eos_word}; {WITH_LINE_ENDS}")
        return super().build_dataset_for_inference(src_tokens, src_lengths, **kwargs)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Continue prompts, see ``LanguageModelingTask.inference_step``."""
        if "block" in sample:  # made by StreamDataset
            raise UserError("fairseq-generate needs --sample-break-mode eos: each line of the data is then a prompt")
        words_BT = prefix_tokens
        if words_BT is None:
            words_BT = sample["net_input"]["src_tokens"][:, 1:]  # without the first </s>
        if hasattr(generator, "max_len_b"):  # not the scorer of --score-reference
            self._prepare_generator(generator, sample, words_BT)
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)

    def _prepare_generator(self, generator, sample, words_BT) -> None:
        """Check prompts, and tell fairseq's generator which symbols it must not generate.

        ``words_BT``: the prompts without ``</s>`` before them, padded.
        """
        length = int(words_BT.ne(self.dictionary.pad()).sum(1).max())
        limit = int(generator.max_len_a * sample["net_input"]["src_tokens"].shape[1] + generator.max_len_b)
        if length >= limit:
            raise UserError(
                f"--max-len-b: {limit} tokens are allowed (--max-len-a x prompt + --max-len-b), including the prompt, "
                f"and a prompt has {length}; give more"
            )

        def has(symbol: int) -> bool:
            return bool(words_BT.eq(symbol).any())

        if has(self.dictionary.eos()):
            raise UserError(f"a prompt has {self.dictionary.eos_word}, where fairseq's search ends; {WITH_LINE_ENDS}")
        # <unk> is not generated, as by the other tools; a penalty would also count where a prompt has it.
        if generator.unk_penalty in (0, math.inf):  # --unkpen is not given
            generator.unk_penalty = 0 if has(self.dictionary.unk()) else math.inf
        never = [token for token in (BOS, *padding_words(self.dictionary.symbols)) if not has(token)]
        generator.token_indices_to_suppress = words_BT.new_tensor(never) if never else None
