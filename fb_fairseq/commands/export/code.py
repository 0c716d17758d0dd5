"""The code of an exported model, for ``trust_remote_code=True`` where fb_fairseq is not installed.

transformers takes the code from one folder without subfolders, and finds the files by reading ``from .NAME import …``
with a regular expression. So every module that the model needs becomes a file there, ``fb_fairseq.ops.layers``
``fb_fairseq_ops_layers.py``, with relative imports. Sources in C++ cannot come along: the reference runs on CPUs.
"""

import ast
import os
from collections.abc import Iterator

import fb_fairseq
from fb_fairseq.errors import UserError

PACKAGE = fb_fairseq.__name__
OPTIONAL = ("triton",)  # packages without which a model runs: transformers asks for those that are not in a try
HEADER = f"# Copied from {PACKAGE} {fb_fairseq.__version__} (MIT licence) by python -m {PACKAGE} export --with-code.\n"


def flat(module: str) -> str:
    """The name of a module in the folder."""
    return module.replace(".", "_")


def source_file(module: str) -> str | None:
    """The file of a module of this package; None: there is none."""
    path = os.path.join(fb_fairseq.__path__[0], *module.split(".")[1:])
    return next((found for found in (f"{path}.py", os.path.join(path, "__init__.py")) if os.path.isfile(found)), None)


def imports(node: ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
    """The modules of this package that a line imports, each with the name that it takes (None: the module itself)."""
    for alias in node.names:
        module = f"{node.module}.{alias.name}"
        yield (module, None) if source_file(module) else (str(node.module), alias.name)


def rewritten(source: str) -> tuple[str, list[str]]:
    """A module's source with relative imports, and the modules of this package that it imports."""
    lines, needed = source.splitlines(), []
    for node in [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        indent, new = " " * node.col_offset, []
        if names[0].partition(".")[0] in OPTIONAL:
            old = [line[node.col_offset :] for line in lines[node.lineno - 1 : node.end_lineno]]
            new = ["try:", *(f"    {line}" for line in old), "except ImportError:", "    raise"]
        elif isinstance(node, ast.ImportFrom) and names[0].partition(".")[0] == PACKAGE:
            aliases = {alias.name: f" as {alias.asname}" if alias.asname else "" for alias in node.names}
            for module, name in imports(node):
                needed.append(module)
                if name is None:
                    short = module.rpartition(".")[2]
                    new.append(f"from .{flat(module)} import __doc__ as _  # for transformers to find the file")
                    new.append(f"from . import {flat(module)}{aliases[short] or f' as {short}'}")
                else:
                    new.append(f"from .{flat(module)} import {name}{aliases[name]}")
        elif PACKAGE in [name.partition(".")[0] for name in names]:
            raise UserError(f"--with-code: cannot copy 'import {names[0]}'; write from … import …")
        if new:
            lines[node.lineno - 1 : node.end_lineno] = [
                "\n".join(indent + line for line in new),
                *[""] * (node.end_lineno - node.lineno),
            ]
    return "\n".join(lines) + "\n", needed


def files(*modules: str) -> Iterator[tuple[str, str]]:
    """The names and contents of the files that some modules need, their own included."""
    waiting, seen = list(modules), set(modules)
    while waiting:
        module = waiting.pop()
        with open(source_file(module), encoding="utf-8") as file:
            text, needed = rewritten(file.read())
        yield f"{flat(module)}.py", HEADER + text
        waiting += sorted(set(needed) - seen)
        seen.update(needed)


def add_code(model, folder: str) -> None:
    """Write the files that a model needs, and name its classes in its configuration, which is saved afterwards."""
    auto = "AutoModelForSeq2SeqLM" if model.config.is_encoder_decoder else "AutoModelForCausalLM"
    classes: dict[str, type] = {"AutoConfig": type(model.config), auto: type(model)}
    model.config.auto_map = {name: f"{flat(kind.__module__)}.{kind.__name__}" for name, kind in classes.items()}
    for name, text in files(*(kind.__module__ for kind in classes.values())):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
