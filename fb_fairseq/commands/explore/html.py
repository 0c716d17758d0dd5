"""Parts that the page's pictures have in common, as HTML."""


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
