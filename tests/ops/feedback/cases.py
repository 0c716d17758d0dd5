"""Random blocks: a model with inputs, and what a step loop makes of them."""

from functools import partial

import torch

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops.feedback.autograd import run_block_with
from fb_fairseq.ops.feedback.loops import LOOPS
from fb_fairseq.ops.feedback.passes import passes_of
from fb_fairseq.ops.feedback.types import BlockInputs, EncoderContext
from fb_fairseq.ops.layers import Affine, CrossAttention
from tests.modules.options import random_options, randomise


def block_of(name):
    """A function that runs blocks by the step loop of this name, whatever the device."""
    return partial(run_block_with, lambda inputs, needs_backward: passes_of(LOOPS[name], needs_backward))


reference_passes = block_of("reference")  # in one node of autograd, as where no other loop runs

# What a block may have to do, as changes of a ``Case``; "same" is the Recurrent Transformer.
KINDS = {"plain": {}, "encoder": {"cross": True}, "episodes": {"resets": True}, "same": {"memory_composition": "same"}}


class Case:
    """A model with inputs.

    Args:
        seed: of options, parameters and inputs; chooses the rates of dropout, too.
        carried: the number of steps that are carried into the block, cut to the longest span; None: 0, 2 or 50.
        cross: with attention to an encoder.
        sources: positions of the encoder's output.
        resets: with episodes of 4 steps.
        changes: options of the model in place of random ones.

    Attributes:
        options: those of the model.
        model: the ``FeedbackTransformer``, with random parameters.
        reaches: how many steps back each of its layers sees.
        x: the inputs [T, B, D].
        memory: what is carried into the block [K, C, B, D].
        dropouts: the masks that every loop applies.
        d_out: the gradient of the outputs.
        age_TB: with ``resets`` the age of each stream's episode; else None.
        encoder: the encoder's keys, values and padding for each layer; empty without ``cross``.
        alignment: the options ``alignment_layer`` and ``alignment_heads``; empty without ``cross``.
        cross_layers: with ``cross``: for each layer of the model the query projection, output projection and norm of
            its attention to the encoder.
        keys: with ``cross``: the encoder's keys and values [2, L, sources, B, H, E], of which ``encoder`` is made.
        learned: all that gets a gradient by name: the parameters, ``input``, and with ``cross`` ``encoder``.
    """

    def __init__(
        self,
        seed,
        *,
        steps=9,
        streams=3,
        carried=None,
        dtype=torch.double,
        cross=False,
        resets=False,
        sources=5,
        **changes,
    ):
        torch.manual_seed(seed)
        self.options = random_options(
            seed,
            **{
                "attention_dropout": 0.2 * (seed % 3 == 0),
                "activation_dropout": 0.3 * (seed % 4 == 0),
                "dropout": 0.1 * (seed % 5 == 0),
                **changes,
            },
        )
        o = self.options
        self.model = FeedbackTransformer(o).to(dtype)
        randomise(self.model)
        if o.adaptive_span:
            for layer in self.model.layers:
                layer.self_attn.adaptive_span.z.data.uniform_(-0.2, 0.7)  # a mask may be zero everywhere
        self.reaches = self.model.reaches()
        D = o.decoder_embed_dim
        self.x = torch.randn(steps, streams, D, dtype=dtype, requires_grad=True)
        carried = [0, 2, 50][seed % 3] if carried is None else carried
        self.memory = torch.randn(self.model.memory.memories, carried, streams, D, dtype=dtype)[:, -max(self.reaches) :]
        self.d_out = torch.randn_like(self.x)
        self.age_TB = None
        if resets:
            starts = torch.randint(4, (streams,))
            self.age_TB = (torch.arange(steps)[:, None] + starts) % 4
            self.age_TB[0, 0] = 100  # a stream whose episode began long before the block
        self.learned = dict(self.model.named_parameters(), input=self.x)
        self.encoder, self.alignment = [], {}
        if cross:
            self.alignment = dict(alignment_layer=o.decoder_layers - 1, alignment_heads=(None, 1)[seed % 2])
            self.add_encoder(sources)
        self.dropouts = self.model.draw_dropouts(self.x, o.attention_span, self.encoder)

    def add_encoder(self, sources):
        """Draw layers of attention to an encoder, and its keys and values."""
        o = self.options
        D, H, E, L = o.decoder_embed_dim, o.decoder_attention_heads, o.head_dim, o.decoder_layers
        streams = self.x.shape[1]
        self.cross_layers = torch.nn.ModuleList(
            torch.nn.ModuleList([torch.nn.Linear(D, H * E), torch.nn.Linear(H * E, D), torch.nn.LayerNorm(D)])
            for _ in range(L)
        ).to(self.x.dtype)
        padding = torch.zeros(streams, sources, dtype=torch.bool)
        padding[0, 3:] = True
        self.keys = torch.randn(2, L, sources, streams, H, E, dtype=self.x.dtype, requires_grad=True)
        self.encoder = [EncoderContext(self.keys[0, l], self.keys[1, l], padding) for l in range(L)]
        self.learned.update(self.cross_layers.named_parameters(prefix="cross"), encoder=self.keys)

    def weights(self):
        """The block's weights, with those of attention to the encoder."""
        weights = self.model.loop_weights(self.x.device, self.reaches)
        if not self.encoder:
            return weights
        layers = [
            layer._replace(cross=CrossAttention(*(Affine(part.weight, part.bias) for part in parts)))
            for layer, parts in zip(weights.layers, self.cross_layers)
        ]
        return weights._replace(layers=layers)

    def forward(self, loop, recompute=False, x=None):
        """The block's results (outputs, memories) by a loop: a function of ``BlockInputs``.

        Args:
            x: the input in place of the case's own.
        """
        options = self.model.loop_options(max(self.reaches), **self.alignment)
        options = options._replace(recompute=recompute)
        return loop(
            BlockInputs(
                x_TBD=self.x if x is None else x,
                memory_KCBD=self.memory,
                weights=self.weights(),
                options=options,
                dropouts=self.dropouts,
                encoder=self.encoder,
                age_TB=self.age_TB,
            )
        )

    def clear(self):
        """Forget the gradients of all that gets one."""
        for parameter in self.learned.values():
            parameter.grad = None

    def gradients(self):
        """The gradients by name; None where there is none."""
        return {name: parameter.grad for name, parameter in self.learned.items()}

    def results(self, loop, recompute=False):
        """The block's results by a loop, by name: ``output`` and ``memory``."""
        return dict(zip(("output", "memory"), self.forward(loop, recompute)))

    def run(self, loop, recompute=False):
        """The block's results by a loop, and all gradients for the gradient ``d_out``, by name; the gradients that the
        case had are cleared before."""
        self.clear()
        results = self.results(loop, recompute)
        (results["output"] * self.d_out).sum().backward()
        return {**{name: x if x is None else x.detach() for name, x in results.items()}, **self.gradients()}


def compare(ours, plain, tolerance):
    """Results by name equal plain ones to an absolute and relative tolerance; where these are None, to None or zero."""
    for name, expected in plain.items():
        if expected is None:
            assert ours[name] is None or ours[name].abs().max() == 0, name
        else:
            torch.testing.assert_close(
                ours[name], expected, atol=tolerance, rtol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
            )


def compare_norms(ours, plain, tolerance):
    """As ``compare``, by the norm of each difference: rounding errors of long sums hit small entries, too.

    The tolerance is relative to the plain result's norm, but at least to a hundredth of the largest: the gradients of
    keys' biases are zero.
    """
    least = max(value.double().norm() for value in plain.values() if value is not None) / 100
    for name, expected in plain.items():
        if expected is None:
            assert ours[name] is None or not ours[name].any(), name
        else:
            difference = (ours[name].double() - expected.double()).norm()
            assert difference < tolerance * max(expected.double().norm(), least), name
