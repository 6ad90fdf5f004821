"""Pictures of results, in one plain style; matplotlib is imported when one is drawn.

`draw_picture(path, …)` gives an empty figure and writes it at the end; an SVG of the same content has the same bytes.
The kind of file follows from its ending.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import InputError, MissingExtra, OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KINDS", "check_picture", "check_picture_name", "draw_picture"]

KINDS = (".svg", ".png", ".pdf")


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
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "elmokit",  # the same names inside the file every time
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height))
        yield figure, figure.subplots(**grid)
        try:
            figure.savefig(path, dpi=160, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
        except OSError as problem:
            raise OutputError(f"{path}: cannot be written ({problem.strerror})") from problem
