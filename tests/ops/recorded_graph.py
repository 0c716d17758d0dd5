"""A stand-in for CUDA graphs on a CPU: records a function's operations on tensors, and replays them on the same memory.

As with a real graph, Python does not run in a replay: what the function decided when it was recorded stays decided, and
tensors that it did not read from its inputs' memory stay as they were. Waiting for the device (``.item()``) is refused.
"""

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fb_fairseq.ops import capturing

EMPTY = {"empty", "empty_strided", "empty_like", "new_empty"}
# Operations that wait for the device, or copy from the host.
WAITS = {"lift_fresh", "_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select"}


class Recording(TorchDispatchMode):
    """Records operations, and the contents of all memory before it is written to."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls
        self.before = {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = operation._schema.name.split("::")[1]
        if name in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        for argument, given in zip(operation._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.keep(given)
        for name, given in kwargs.items():
            if name.startswith("out") or name == "grad_input":
                self.keep(given)
        result = operation(*args, **kwargs)
        self.calls.append((operation, args, kwargs, result))
        return result

    def keep(self, x):
        """Save the contents of a tensor, or a list of tensors, that is about to be written to."""
        for tensor in x if isinstance(x, (list, tuple)) else [x]:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.before:
                whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                self.before[storage.data_ptr()] = whole, whole.clone()

    def undo(self):
        """Restore the contents of all memory that was written to."""
        for whole, before in self.before.values():
            whole.copy_(before)


class RecordedGraph:
    """See ``fb_fairseq.ops.cuda_graphs.CudaGraph``."""

    def __init__(self, function, before=None):
        self.calls = []
        recording = Recording(self.calls)
        with recording:
            self.result = function()
        # On a GPU nothing runs then: nothing is changed, and there is no result.
        recording.undo()
        for x in pytree.tree_flatten(self.result)[0]:
            if torch.is_tensor(x) and x.is_floating_point():
                x.fill_(float("nan"))

    def replay(self):
        with torch.no_grad():
            for operation, args, kwargs, recorded in self.calls:
                returns = operation._schema.returns
                aliases = [r.alias_info for r in returns]
                if any(info is not None and not info.is_write for info in aliases):
                    continue  # a view, of memory that is filled already
                if operation._schema.name.removeprefix("aten::") in EMPTY:
                    continue
                result = operation(*args, **kwargs)
                if any(info is not None for info in aliases) or not returns:
                    continue  # written in place
                pairs = zip(pytree.tree_flatten(recorded)[0], pytree.tree_flatten(result)[0])
                for old, new in pairs:
                    if torch.is_tensor(old):
                        old.copy_(new)


def capture_on_cpu(monkeypatch, module, captures=None, capture_at=None) -> list:
    """Have a module capture on a CPU, and a class of ``Captures`` after so many times. Returns a list that grows with
    each graph that is made."""
    made = []
    monkeypatch.setattr(module, "CudaGraph", lambda function, before=None: made.append(1) or RecordedGraph(function))
    monkeypatch.setattr(capturing, "GRAPH_DEVICES", ("cpu",))
    monkeypatch.setattr(capturing, "_capturing_failed", False)
    if captures is not None:
        monkeypatch.setattr(captures, "capture_at", capture_at)
    capturing.log_once.cache_clear()
    return made
