"""Tables on the terminal."""


def table(head: list[str], rows: list[list[str | float]]) -> None:
    """Print rows below a head. The first column is aligned to the left, the others to the right."""

    def text(x: str | float) -> str:
        if isinstance(x, str):
            return x
        return f"{x:,.3g}" if x < 100 else f"{x:,.0f}"

    cells = [head] + [[text(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(others, widths[1:])]))
