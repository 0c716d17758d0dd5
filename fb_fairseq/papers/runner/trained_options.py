"""The options that a run was trained with are kept beside it, RUN.setting, and others are refused. The file has the
options of ``fairseq-train`` that decide what is trained, one per line. Options about logging, saving, devices and the
number of updates may change. The number of processes may too, if ``--batch-size`` or ``--max-tokens``, times
``--update-freq``, makes up for it."""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from fb_fairseq.errors import UserError

OPTION = re.compile(r"--[A-Za-z]")
MAY_CHANGE = re.compile(
    r"--(.*interval.*|cpu|ddp-backend|distributed-.*|log-.*|max-update|num-workers|patience|save-dir|step-loop.*|"
    r"stop-time-hours|tensorboard-logdir|user-dir)$"
)
PER_PROCESS = "--batch-size", "--max-tokens"
SHOWN = 3  # differences in the message


def options(words: Sequence[str], out: str, processes: int) -> dict[str, str]:
    """The options that decide what is trained. The last one counts where one is given twice, as for fairseq. Paths in
    the recipe's folder, which may be moved, are written without it."""
    found: dict[str, str] = {}
    option = None
    for word in words:
        if OPTION.match(word):
            option, _, value = word.partition("=")
            found.pop(option, None)
            found[option] = value
        elif option is not None:
            found[option] = f"{found[option]} {word[len(out) + 1 :] if word.startswith(f'{out}/') else word}".strip()
    frequency = found.get("--update-freq", "1")
    if frequency.isdecimal():
        found.pop("--update-freq", None)
        for name in PER_PROCESS:
            if found.get(name, "").isdecimal():
                found[name] = str(int(found[name]) * int(frequency) * processes)
    return {name: value for name, value in found.items() if not MAY_CHANGE.match(name)}


def lines(setting: dict[str, str]) -> list[str]:
    """The setting's file: one option per line."""
    return sorted(f"{name} {value}".strip().replace("\n", "\\n") for name, value in setting.items())


def differences(new: list[str], old: list[str]) -> list[str]:
    """What differs, each as a few words."""
    now, then = (dict((line.split(" ", 1) + [""])[:2] for line in given) for given in (new, old))
    found = []
    for name in sorted({*now, *then}):
        if name not in then:
            found.append(f"{name} {now[name]}".strip() + " is new")
        elif name not in now:
            found.append(f"{name} {then[name]}".strip() + " is missing")
        elif not same(now[name], then[name]):
            found.append(f"{name} {now[name]} instead of {then[name]}")
    return found


def same(first: str, second: str) -> bool:
    """Whether two values are the same, as text or as a number: 2.5e-05 is 0.000025."""
    try:
        return first == second or Decimal(first) == Decimal(second)
    except InvalidOperation:
        return False


def keep(run: str, out: str, processes: int, words: Sequence[str]) -> None:
    """Write RUN.setting. A run with checkpoints that were trained with other options is refused; the message names the
    differences."""
    file, setting = Path(f"{run}.setting"), lines(options(words, out, processes))
    if file.exists() and any(Path(run).glob("*.pt")):
        found = differences(setting, file.read_text(encoding="utf-8").splitlines())
        if found:
            more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise UserError(
                f"{run}: was trained with other options: {', '.join(found[:SHOWN])}{more}; "
                "choose another --out, or delete this folder"
            )
    file.write_text("\n".join(setting) + "\n", encoding="utf-8")
