"""Pictures of results, in one plain style; matplotlib is imported when one is drawn.

`draw_picture(path, …)` gives an empty figure and writes it at the end; an SVG of the same content has the same bytes.
The kind of file follows from its ending.

An SVG holds its words as text, and its colours follow the page: a reader with a dark screen sees light words on a dark
ground. The ground is painted in both cases, because a page without a dark mode does not tell the picture that it has
none. That works by colour: everything is drawn in the colours named here, and a style sheet in the file says what each
becomes in the dark. A `.png` or `.pdf` is always light.
"""

from __future__ import annotations

import io
import textwrap
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import InputError, MissingExtra, OutputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "COLOURS",
    "GREY",
    "INK",
    "KINDS",
    "RED",
    "YELLOW",
    "check_picture",
    "check_picture_name",
    "draw_heat",
    "draw_heat_key",
    "draw_legend",
    "draw_picture",
    "draw_title",
    "label_bars",
    "wrap",
]

KINDS = (".svg", ".png", ".pdf")

GROUND, INK, GRID, GREY = "#ffffff", "#1f2328", "#d8dce0", "#8a9099"
BLUE, YELLOW, GREEN, VIOLET, RED = "#1f5f99", "#edae49", "#77a88d", "#b5a4c9", "#d1495b"
ON_BLUE = "#fdfdfd"  # words on the strongest blue, in the light and in the dark: a white of its own, not the ground's
COLOURS = (BLUE, YELLOW, GREEN, VIOLET, GREY)
IN_THE_DARK = {GROUND: "#131416", INK: "#d9dde2", GRID: "#3a3f46", BLUE: "#2f78bd", YELLOW: "#d99a33", RED: "#ec6a7c"}

FONT = "'DejaVu Sans'"
MATPLOTLIBS_STYLE = "*{stroke-linejoin: round; stroke-linecap: butt}"
LETTER = 0.6  # the mean width of a letter, in font sizes: DejaVu Sans is wide, so other fonts fit as well


def check_picture_name(path: str | Path) -> None:
    """Refuse a name that no picture can have."""
    if Path(path).suffix not in KINDS:
        raise InputError(f"{path}: expected a picture's name that ends in {', '.join(KINDS)}")
    if not Path(path).parent.is_dir():
        raise OutputError(f"{path}: the folder {Path(path).parent} is not there; make it first")


def check_picture(path: str | Path) -> None:
    """Refuse a picture that could not be drawn, before anything is computed for it."""
    check_picture_name(path)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as problem:
        raise MissingExtra("matplotlib is not installed, which draws pictures: pip install 'elmokit[viz]'") from problem


@contextmanager
def draw_picture(path: str | Path, *, width: float, height: float, **grid: Any) -> Iterator[tuple[Figure, Any]]:  # noqa: ANN401
    """A figure and its axes, written to `path` at the end.

    Arguments:
        path: where to; `.svg`, `.png` or `.pdf`.
        width: in inches.
        height: in inches.
        grid: `nrows`, `ncols`, `sharey`, … as `Figure.subplots` takes them.
    """
    check_picture(path)
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "elmokit",  # the same names inside the file every time
        "svg.fonttype": "none",
        "font.family": [FONT.strip("'")],
        "font.size": 9,
        "figure.facecolor": GROUND,
        "axes.facecolor": "none",
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.prop_cycle": cycler(color=COLOURS),
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height))
        yield figure, figure.subplots(**grid)
        try:
            if Path(path).suffix == ".svg":
                Path(path).write_text(_write_svg(figure), encoding="utf-8")
            else:
                figure.savefig(path, dpi=160)
        except OSError as problem:
            raise OutputError(f"{path}: cannot be written ({problem.strerror})") from problem


def _write_svg(figure: Figure) -> str:
    """The figure with a style sheet for the dark, and a font that a reader's machine has."""
    file = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib's font lacks are text in the file, and the reader's font has them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    assert MATPLOTLIBS_STYLE in text, "matplotlib writes its style sheet in another way"
    dark = "".join(
        f'[style*="{what}: {light}"]{{{what}: {colour} !important}}'
        for light, colour in IN_THE_DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in text
    )
    style = f"{MATPLOTLIBS_STYLE} text{{white-space: pre}} @media (prefers-color-scheme: dark) {{{dark}}}"
    return text.replace(MATPLOTLIBS_STYLE, style).replace(FONT, f"{FONT}, Verdana, sans-serif")


def wrap(text: str, width: float, *, size: float, indent: str = "") -> list[str]:
    """Lines of a text that are at most `width` inches wide.

    Arguments:
        text: to divide between words; a word that is wider than a line is divided too.
        width: in inches.
        size: of the font, in points.
        indent: what the lines after the first begin with.
    """
    columns = max(10, int(72 * width / (LETTER * size)))
    # A Chinese character is as wide as two letters.
    counted = "".join(letter + "\0" * (unicodedata.east_asian_width(letter) in "WF") for letter in text)
    return [line.replace("\0", "") for line in textwrap.wrap(counted, columns, subsequent_indent=indent)]


def draw_title(figure: Figure, text: str, *, size: float = 9) -> None:
    """A title above everything, from the left edge, in as many lines as it needs."""
    lines = wrap(text, figure.get_figwidth() - 0.2, size=size)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=size)


def draw_legend(axes: Axes, *, columns: int) -> None:
    """A legend above the axes, where it takes nothing from their width."""
    axes.legend(
        fontsize=8,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0,
        handlelength=1.5,
    )


def label_bars(axes: Axes, bars: Any, labels: Sequence[str], **options: Any) -> None:  # noqa: ANN401
    """Write a label at the end of each bar, on a piece of ground that interrupts a line behind it."""
    for label in axes.bar_label(bars, labels=labels, fontsize=8, **options):
        label.set_bbox({"facecolor": GROUND, "edgecolor": "none", "pad": 0.6})
        label.set_zorder(4)


def draw_heat(axes: Axes, table: Sequence[Sequence[float]], *, low: float = 0.0, high: float = 1.0) -> None:
    """Draw a table of numbers as squares: the higher a number, the less of the ground shows through its blue.

    Arguments:
        axes: which are emptied of ticks and frame, and show the first row on top.
        table: rows of numbers.
        low: the number that has no colour.
        high: the number that has the full colour.
    """
    from matplotlib.patches import Rectangle

    for row, numbers in enumerate(table):
        for column, number in enumerate(numbers):
            strength = min(max((number - low) / (high - low), 0.0), 1.0)
            place = (column - 0.48, row - 0.48)
            axes.add_patch(Rectangle(place, 0.96, 0.96, facecolor=BLUE, alpha=round(strength, 3), linewidth=0))
            colour = ON_BLUE if strength > 0.7 else INK
            axes.text(column, row, f"{number:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axes.set(xlim=(-0.5, len(table[0]) - 0.5), ylim=(len(table) - 0.5, -0.5))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw_heat_key(figure: Figure, axes: Sequence[Axes], label: str, *, low: float = 0.0, high: float = 1.0) -> None:
    """What the colours of `draw_heat` mean, in a narrow strip to the right of `axes`."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize, to_rgba

    steps = 20
    colours = ListedColormap([to_rgba(BLUE, step / (steps - 1)) for step in range(steps)])
    slim = figure.get_figheight() / 0.2
    key = figure.colorbar(ScalarMappable(Normalize(low, high), colours), ax=list(axes), label=label, aspect=slim)
    key.outline.set_edgecolor(GRID)
    key.ax.tick_params(labelsize=8)
