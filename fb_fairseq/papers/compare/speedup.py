"""How many times as fast a shallow decoder decodes as one of six layers (v3 §4.2.1, v1 §4.2)."""

from fb_fairseq.papers.runner.results import IDENTITY

DEEP = 6  # decoder layers; "reducing to 1-layer improves decoding speed by 4.2x"
# Runs that agree in these differ in depth alone.
SAME = (*(name for name in IDENTITY if name != "layers"), "seed", "hardware")


def with_speedups(runs: list[dict]) -> list[dict]:
    """The runs, with ``decoding_speedup`` where the same model with six layers was measured on the same hardware."""

    def speed_of(run: dict) -> float:
        speed = run.get("decoded_tokens_per_second")
        return speed if isinstance(speed, (int, float)) and speed > 0 else 0

    def setting_of(run: dict) -> tuple:
        return tuple(run.get(name) for name in SAME)

    deep = {setting_of(run): speed_of(run) for run in runs if run.get("layers") == DEEP and speed_of(run)}
    found = []
    for run in runs:
        reference = deep.get(setting_of(run))
        speedup = {"decoding_speedup": speed_of(run) / reference} if reference and speed_of(run) else {}
        found.append({**run, **speedup})
    return found
