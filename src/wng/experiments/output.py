"""Output of the studies: CSV data, Markdown tables, figures in one style."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wng.runs.files import one_sentence, write_atomic

if TYPE_CHECKING:  # tables do not need matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED, BLUE, GRAY, GREEN, ORANGE = "#d1495b", "#2e6f9e", "#8a8f98", "#3a9d6e", "#e09f3e"


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows as CSV, with seven digits per float, so that equal runs give equal bytes."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([f"{x:.6e}" if isinstance(x, float) else x for x in row])
    write_atomic(path, file.getvalue().encode())


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def number(value: float, sign: str = "") -> str:
    """Format a number for readers, such as 7,254 or 4.37 or −0.0123; `sign` is a format sign."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def figure(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """Create an empty figure; return it and its panels in reading order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return fig, list(axes.flat)


def save(fig: "Figure", path: Path) -> None:
    """Write the figure as PNG and close it."""
    import matplotlib.pyplot as plt

    try:
        with one_sentence(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            fig.savefig(path, dpi=130)
    finally:
        plt.close(fig)
