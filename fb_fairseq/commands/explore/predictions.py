"""The distribution of the next token, as HTML."""

from fb_fairseq.commands.explore.parts import bar, percent, picture
from fb_fairseq.commands.explore.reading import Reading

CANDIDATES = 10  # tokens whose probabilities are shown


def next_token(reading: Reading, step: int, temperature: float, topk: int) -> str:
    """The distribution of the token after a step: the likeliest ones, and the one that follows it in the text."""
    vocabulary, text = reading.model.vocabulary, reading.tokens[: step + 1]
    probabilities = reading.next_log_probs(step).exp()
    drawn = reading.drawn(step, temperature, topk)
    follows = reading.tokens[step + 1 : step + 2]
    rows = []
    for token in dict.fromkeys(probabilities.topk(min(CANDIDATES, len(vocabulary))).indices.tolist() + follows):
        share = probabilities[token].item()
        chance = drawn[token].item()
        tip = f"model: {percent(share)}; drawn in generating: {percent(chance)}"
        rows.append(bar(vocabulary.next_label(text, token), share, chance, token in follows, tip))
    explanation = (
        f"What the model expects after step {step}; entropy <b>{reading.entropy(step):.2f} bits</b>. The mark is the "
        "probability in generating, with this temperature and top-k."
    )
    if follows:
        explanation += " <b>Orange</b>: what follows in the text."
    return picture(f"Next {vocabulary.unit}", explanation, "ex-bars", "".join(rows))
