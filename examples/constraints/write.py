"""Write the releases that this environment has into the constraints file of its Python: after the suite has passed.

::

    FB_FAIRSEQ_VENV=NEW FB_FAIRSEQ_VERSIONS=newest bash tests/run.sh && NEW/bin/python examples/constraints/write.py
"""

import pathlib
import re
import sys
from importlib import metadata

# Left to what requires them: torch's own libraries, which differ between its builds; and the package itself.
LEFT_OUT = re.compile("nvidia-|cuda-|triton$|fb-fairseq$|pip$|setuptools$|wheel$")


def releases():
    """``name==version`` of each package, without the label of a local build (``+cpu``)."""
    found = {}
    for package in metadata.distributions():
        name = re.sub("[-_.]+", "-", package.metadata["Name"]).lower()
        if not LEFT_OUT.match(name):
            found[name] = f"{name}=={package.version.partition('+')[0]}"
    return [found[name] for name in sorted(found)]


def main():
    """Write the file."""
    path = pathlib.Path(__file__).with_name("python{}.{}.txt".format(*sys.version_info[:2]))
    path.write_text("\n".join(["# Written by write.py: what the tests last passed with.", *releases(), ""]))
    print(path)


if __name__ == "__main__":
    main()
