"""Parts of pictures, as HTML. Texts are escaped: whatever a model writes is shown as text."""

from html import escape


def percent(share: float) -> str:
    """A share in percent, with two digits at least."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def picture(title: str, explanation: str, css: str, content: str) -> str:
    """A picture below its heading, and what explains it (HTML)."""
    return f'<div class="ex"><h3>{title}</h3><p>{explanation}</p><div class="{css}">{content}</div></div>'


def scale(low: str, colours: str, high: str) -> str:
    """A scale of colours between two numbers (HTML)."""
    gradient = f'<span class="ex-scale" style="background:linear-gradient(90deg,{colours})"></span>'
    return f'<span class="ex-range">{low}{gradient}{high}</span>'


def bar(name: str, share: float, mark: float = 0.0, follows: bool = False, tip: str = "") -> str:
    """A row of a bar chart, with a mark at another share if there is one.

    Args:
        name: of the row.
        share: the length of its bar, of 1.
        mark: the other share; 0: none.
        follows: whether the row is that of the token that follows in the text.
        tip: text over the bar.
    """
    css = "ex-name ex-follows" if follows else "ex-name"
    marked = f'<span class="ex-mark" style="left:{100 * mark:.1f}%"></span>' if mark else ""
    return (
        f'<span class="{css}" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="ex-track" title="{escape(tip)}"><span class="ex-bar" style="width:{100 * share:.1f}%"></span>'
        f'{marked}</span><span class="ex-number">{percent(share)}</span>'
    )
