"""``--criterion lm_loss``: cross-entropy, logged in the units in which language models are reported."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_losses import adaptive_losses

# Prefix, in logging outputs, of what a model wants to be logged (``extra["logged"]``).
MODEL_MEASURE = "measure_"
# Priorities order the entries of fairseq's log lines. The trainer's own have at most 800, except GPU memory (1500).
MODEL_MEASURE_PRIORITY = 800
TOTALS_PRIORITY = 900


def bits_per_byte(meters) -> float:
    """``total_bits`` / ``total_bytes``, from fairseq's meters of one logging interval."""
    return round(float(meters["total_bits"].sum / meters["total_bytes"].sum), 4)


def summed(logging_outputs: list[dict[str, Any]]) -> dict[str, float]:
    """The entries' sums over all outputs, by name. The host waits for the device once, for all of them."""
    sums: dict[str, Any] = {}
    for output in logging_outputs:
        for name, value in output.items():
            sums[name] = sums.get(name, 0) + (value.double() if torch.is_tensor(value) else value)
    waiting = [name for name, value in sums.items() if torch.is_tensor(value)]
    if waiting:
        sums.update(zip(waiting, torch.stack([sums[name] for name in waiting]).tolist()))
    return sums


@dataclass
class LanguageModelLossConfig(FairseqDataclass):
    """fairseq's option that the loss refuses."""

    sentence_avg: Any = II("optimization.sentence_avg")


@register_criterion("lm_loss", dataclass=LanguageModelLossConfig)
class LanguageModelLoss(FairseqCriterion):
    """Sum of the targets' negative log-likelihoods, without padding; in training, plus the penalty of adaptive spans.

    Exact for an adaptive softmax too. (fairseq's ``adaptive_loss`` is not: it applies the padding index within every
    cluster, and so ignores one word of each.)

    Logs

    - ``loss``: bits per token;
    - ``ppl``: perplexity per token;
    - ``accuracy``: percentage of targets that are the most probable token (of an adaptive softmax in validation only);
    - ``total_bits`` and ``total_tokens``: unrounded totals;
    - ``bpb`` and ``total_bytes``, for byte data: bits per byte, where ``</s>`` adds to the bits, but not to the bytes;
    - what the model reports: average and maximum of adaptive spans in steps; in validation the weights of the layers in
      the feedback memory.
    """

    def __init__(self, task, sentence_avg=False):
        super().__init__(task)
        if sentence_avg is True:  # (in a configuration that is not whole: the text "${optimization.sentence_avg}")
            raise UserError("--sentence-avg: --criterion lm_loss averages over tokens; leave it out")
        self.byte_data = getattr(task, "byte_data", False)  # fairseq's own tasks do not have it
        self.eos = task.target_dictionary.eos()

    def forward(self, model, sample, reduce=True) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch. Returns the loss in nats (with ``reduce=False``, one per position [B * T]), the
        number of targets, by which fairseq divides the gradients, and the logging output.
        """
        net_output = model(**sample["net_input"])
        extra = net_output[1] or {}  # (some of fairseq's models have none)
        target_BT = sample["target"]
        counted_BT = target_BT.ne(self.padding_idx)
        losses, correct_BT = self._losses(model, net_output, target_BT, counted_BT)
        loss = losses.sum() if reduce else losses
        penalty = extra.get("span_penalty")
        if penalty is not None:
            loss = loss + sample["ntokens"] * penalty  # the penalty is per token, the loss a sum
        logging_output = {
            "loss": losses.detach().double().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target_BT.shape[0],
            "sample_size": sample["ntokens"],
        }
        if correct_BT is not None:
            logging_output.update(correct=(correct_BT & counted_BT).sum(), judged=sample["ntokens"])
        measures = extra.get("logged", {})
        if measures:
            logging_output.update({f"{MODEL_MEASURE}{name}": value.detach() for name, value in measures.items()})
            logging_output["measured"] = 1
        if self.byte_data:
            logging_output["bytes"] = (counted_BT & target_BT.ne(self.eos)).sum()
        return loss, logging_output["sample_size"], logging_output

    def _losses(self, model, net_output, target_BT: Tensor, counted_BT: Tensor) -> tuple[Tensor, Tensor | None]:
        """The losses [B * T] in nats, zero for padding, and whether each target is predicted correctly [B, T]."""
        softmax = model.decoder.adaptive_softmax
        if softmax is not None:
            return adaptive_losses(softmax, net_output[0], target_BT, counted_BT, self.training)
        log_probs_BTV = model.get_normalized_probs(net_output, log_probs=True)
        losses = F.nll_loss(
            log_probs_BTV.flatten(0, -2), target_BT.flatten(), ignore_index=self.padding_idx, reduction="none"
        )
        return losses, log_probs_BTV.argmax(-1).eq(target_BT)

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the measures of all workers and batches together."""
        totals = summed(logging_outputs)
        tokens, judged, byte_count = (totals.get(name, 0.0) for name in ("ntokens", "judged", "bytes"))
        if tokens == 0:  # logged with weight 0, because for a missing loss fairseq's trainer logs -1 with weight 1
            metrics.log_scalar("loss", math.nan, 0, round=3)
            return
        bits = totals["loss"] / math.log(2)
        metrics.log_scalar("loss", bits / tokens, tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
        if judged:
            metrics.log_scalar("accuracy", 100 * totals["correct"] / judged, judged, round=2)
        for key in logging_outputs[0]:
            if key.startswith(MODEL_MEASURE):
                name = key[len(MODEL_MEASURE) :]
                mean = totals[key] / totals["measured"]
                metrics.log_scalar(name, mean, 1, MODEL_MEASURE_PRIORITY, round=1 if name.endswith("span") else 4)
        # The totals are tensors because fairseq prints all digits of these, but only six of a number.
        metrics.log_scalar_sum("total_bits", torch.tensor(bits, dtype=torch.double), priority=TOTALS_PRIORITY)
        metrics.log_scalar_sum("total_tokens", torch.tensor(int(tokens)), priority=TOTALS_PRIORITY)
        if byte_count:
            metrics.log_scalar_sum("total_bytes", torch.tensor(int(byte_count)), priority=TOTALS_PRIORITY)
            metrics.log_derived("bpb", bits_per_byte)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all entries are sums, so workers may add them up before ``reduce_metrics``."""
        return True
