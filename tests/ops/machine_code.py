"""What the machine code of a compiled kernel shows (with the tools that Triton brings)."""

import os
import re
import subprocess
import tempfile

import triton

TOOLS = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")


def _output(tool: str, *arguments: str) -> str:
    command = [os.path.join(TOOLS, tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def spills(cubin: bytes) -> int:
    """The number of loads and stores of registers that did not fit.

    Disassembling takes a hundred times as long as asking for the size of the stack, without which there are none.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        if re.search(r"\bSTACK:0 .*\bLOCAL:0 ", _output("cuobjdump", "-res-usage", file.name)):
            return 0
        return len(re.findall(r"\b(?:LDL|STL)\b", _output("nvdisasm", file.name)))
