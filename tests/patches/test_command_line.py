"""fairseq's command line as this package changes it: half precision without a GPU, and errors of the parser."""

import pytest
import torch
from fairseq import options

from tests.models.test_presets import resolve


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("given", [[], ["--cpu"], ["--fp16"], ["--fp16", "--cpu"], ["--bf16"]])
def test_half_precision_where_there_is_no_gpu(given, gpu, monkeypatch):
    """fairseq's flat gradients need one, and it takes --bf16 for a TPU's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    args = resolve("feedback_transformer_lm", *given)
    assert args.fp16_no_flatten_grads == ("--fp16" in given and ("--cpu" in given or not gpu))
    assert not args.tpu


@pytest.mark.parametrize("error", [KeyError("a"), RuntimeError("b"), KeyError(None, "a")])
def test_other_errors_of_the_parser_stay(error, monkeypatch):
    """It says --task or --arch is missing only where they are."""

    def parse(*_):
        raise error

    parser = options.get_training_parser()
    monkeypatch.setattr(parser, "parse_known_args", parse)
    with pytest.raises(type(error)) as raised:
        options.parse_args_and_arch(parser, ["data", "--task", "streaming_lm"])
    assert raised.value is error
