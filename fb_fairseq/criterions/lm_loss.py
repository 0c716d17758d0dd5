"""``--criterion lm_loss``: cross-entropy with the measures that language models are reported in."""

import math

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics

from fb_fairseq.ops.adaptive_softmax import adaptive_losses


def bits_per_byte(meters) -> float:
    return round(float(meters["total_bits"].sum / meters["total_bytes"].sum), 4)


@register_criterion("lm_loss", dataclass=FairseqDataclass)
class LanguageModelLoss(FairseqCriterion):
    """Sum of the targets' negative log-likelihoods; padding is not counted. In training, plus the span penalty.

    Exact for a plain and for an adaptive softmax (fairseq's ``adaptive_loss`` leaves a word of every cluster out).
    Logs ``loss`` (bits per token), ``ppl`` (perplexity per token), ``accuracy`` (%; of an adaptive softmax in
    validation only), the unrounded totals ``total_bits`` and ``total_tokens``, and for byte data ``bpb``: all bits,
    those of ``</s>`` too, divided by the number of bytes. Of a model with adaptive spans, their average and maximum in
    steps; in validation the memory's layer weights.
    """

    def __init__(self, task):
        super().__init__(task)
        self.byte_data = getattr(task, "byte_data", False)
        self.eos = task.target_dictionary.eos()

    def forward(self, model, sample, reduce=True):
        """Returns the loss in nats, the number of targets, and what is logged."""
        net_output = model(**sample["net_input"])
        target = model.get_targets(sample, net_output)
        counted = target.ne(self.padding_idx)
        softmax = getattr(model.decoder, "adaptive_softmax", None)
        if softmax is None:
            losses, correct = self._plain(model.get_normalized_probs(net_output, log_probs=True), target)
        else:
            losses, correct = adaptive_losses(softmax, net_output[0], target, counted, self.training)
        loss = losses.sum() if reduce else losses
        if "span_penalty" in net_output[1]:
            loss = loss + sample["ntokens"] * net_output[1]["span_penalty"]  # fairseq divides by the sample size
        logged = {
            "loss": losses.detach().double().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target.shape[0],
            "sample_size": sample["ntokens"],
        }
        if correct is not None:
            logged.update(correct=(correct & counted).sum(), judged=sample["ntokens"])
        measures = net_output[1].get("logged", {})
        if measures:
            logged.update({f"measure_{name}": value.detach() for name, value in measures.items()}, measured=1)
        if self.byte_data:
            logged["bytes"] = (counted & target.ne(self.eos)).sum()
        return loss, logged["sample_size"], logged

    def _plain(self, log_probs, target):
        losses = F.nll_loss(log_probs.flatten(0, -2), target.flatten(), ignore_index=self.padding_idx, reduction="none")
        return losses, log_probs.argmax(-1).eq(target)

    @staticmethod
    def reduce_metrics(logging_outputs) -> None:
        def total(name):
            return sum(float(log.get(name, 0)) for log in logging_outputs)

        bits, tokens = total("loss") / math.log(2), total("ntokens")
        if tokens == 0:
            return
        metrics.log_scalar("loss", bits / tokens, tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
        if total("judged"):
            metrics.log_scalar("accuracy", 100 * total("correct") / total("judged"), total("judged"), round=2)
        for name in logging_outputs[0]:
            if name.startswith("measure_"):
                digits = 1 if name.endswith("span") else 4
                metrics.log_scalar(name[len("measure_") :], total(name) / total("measured"), 1, 800, round=digits)
        # As tensors, because fairseq prints numbers with six digits, and tensors with all.
        metrics.log_scalar_sum("total_bits", torch.tensor(bits, dtype=torch.double), priority=900)
        metrics.log_scalar_sum("total_tokens", torch.tensor(int(tokens)), priority=900)
        if total("bytes"):
            metrics.log_scalar_sum("total_bytes", torch.tensor(int(total("bytes"))), priority=900)
            metrics.log_derived("bpb", bits_per_byte)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
