"""The pictures of the site, drawn from a real run while the site is built.

python docs/site/pictures.py FOLDER
"""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from kauldron import kd, konfig, writers
from kauldron.writers.png import encode_png, to_uint8

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NUM_STEPS = 1000
SHOWN_STEPS = (0, 50, 1000)
NUM_DIGITS = 8


def draw_all(folder: pathlib.Path) -> None:
    """Draw every picture into a folder, each for a light and for a dark page."""
    folder.mkdir(parents=True, exist_ok=True)
    run = digits_run(NUM_STEPS, SHOWN_STEPS)
    for theme in (LIGHT, DARK):
        (folder / f"digits_{theme.name}.svg").write_text(draw_run(run, theme))
        (folder / f"parts_{theme.name}.svg").write_text(draw_parts(theme))


#
# The run of the first page
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class DigitsRun:
    """What the picture of the first page shows.

    Attributes:
      curves: For each collection, steps and losses.
      rows: Pictures `[n, h, w, 1]` in [0, 1], by their label.
    """

    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]]
    rows: Mapping[str, np.ndarray]


def digits_run(num_steps: int, shown_steps: Sequence[int]) -> DigitsRun:
    """Train `examples/digits_autoencoder.py` for a moment."""
    source = EXAMPLES / "digits_autoencoder.py"
    namespace: dict = {}
    exec(compile(source.read_text(), str(source), "exec"), namespace)
    with tempfile.TemporaryDirectory() as workdir:
        cfg = namespace["get_config"]()
        cfg.workdir = workdir
        cfg.num_train_steps = num_steps
        cfg.log_metrics_every = max(1, num_steps // 50)
        cfg.log_summaries_every = num_steps
        cfg.evals.test.run.n = max(1, num_steps // 20)
        cfg.profiler = None
        cfg.checkpointer.save_on_steps = [*shown_steps]
        cfg.checkpointer.max_to_keep = None
        trainer = konfig.resolve(cfg)
        trainer.train()
        curves = {name: _losses(workdir, name) for name in ("train", "test")}
        images = trainer.eval_ds.first()["image"][:NUM_DIGITS]
        rows = {"held-out digits": np.asarray(images)}
        for step in shown_steps:
            state = kd.from_workdir.get_state(workdir, step=step)
            preds = trainer.model.apply(
                {"params": state.params}, images, is_training_property=False
            )
            rows[f"after {step} steps"] = np.asarray(preds["image"])
    return DigitsRun(curves=curves, rows=rows)


def _losses(workdir: str, name: str) -> tuple[list[int], list[float]]:
    lines = writers.read_scalars(pathlib.Path(workdir) / name)
    points = {
        line["step"]: line["values"]["losses/recon"]
        for line in lines
        if "losses/recon" in line["values"]
    }
    return list(points), list(points.values())


#
# Drawing
#


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours of a light or of a dark page."""

    name: str
    text: str
    quiet: str
    lines: tuple[str, ...]
    box: str


LIGHT = Theme("light", "#1f2933", "#8a94a0", ("#2563eb", "#ea580c"), "#f3f5f8")
DARK = Theme("dark", "#e4e7eb", "#7b8794", ("#7aa2ff", "#fb9a5a"), "#20262e")


def draw_run(run: DigitsRun, theme: Theme) -> str:
    """Return an SVG: the losses on the left, what the model draws on the right."""
    parts = [_chart(run.curves, theme, left=48, top=26, width=320, height=190)]
    size = 44
    for index, (label, images) in enumerate(run.rows.items()):
        top = 26 + index * (size + 6)
        parts.append(_text(556, top + size / 2 + 4, label, theme.quiet, anchor="end"))
        strip = np.concatenate(list(images), axis=1)
        png = base64.b64encode(encode_png(to_uint8(strip))).decode()
        parts.append(
            f'<image x="566" y="{top}" width="{size * len(images)}" height="{size}" '
            f'style="image-rendering:pixelated" href="data:image/png;base64,{png}"/>'
        )
    return _svg(940, 250, parts)


def _chart(curves, theme, *, left, top, width, height) -> str:
    """Draw curves over steps, with a logarithmic vertical axis."""
    last = max(max(steps) for steps, _ in curves.values())
    logs = [np.log10(values) for _, values in curves.values()]
    low, high = min(map(np.min, logs)), max(map(np.max, logs))

    def place(step, log):
        x = left + width * step / last
        return x, top + height * (high - log) / (high - low)

    drawn = [
        f'<path d="M{left} {top}V{top + height}H{left + width}" fill="none" '
        f'stroke="{theme.quiet}"/>'
    ]
    for value in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        if low <= np.log10(value) <= high:
            y = place(0, np.log10(value))[1]
            drawn.append(
                _text(left - 6, y + 4, f"{value:g}", theme.quiet, anchor="end")
            )
    for step in (0, last):
        x = place(step, low)[0]
        drawn.append(_text(x, top + height + 16, str(step), theme.quiet, "middle"))
    drawn.append(
        _text(left + width / 2, top + height + 16, "step", theme.quiet, "middle")
    )
    for index, (name, (steps, _)) in enumerate(curves.items()):
        points = [place(step, log) for step, log in zip(steps, logs[index])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        color = theme.lines[index]
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        )
        label = f"{name} loss {10 ** logs[index][-1]:.3f}"
        drawn.append(_text(left + width, top + 14 + 18 * index, label, color, "end"))
    return "".join(drawn)


_FLOW = (
    # What the box is called, what stands below, where it is (column, row).
    ("train_ds", "batch.image", 0, 0),
    ("model", "preds.image", 1, 0),
    ("train_losses", "loss_total", 2, 0),
    ("optimizer", "grads, updates", 3, 0),
    ("state", "params, step", 4, 0),
    ("metrics, summaries", "read any key", 1, 1),
    ("writer", "TensorBoard, JSON, W&amp;B", 2, 1),
    ("evals", "the same on eval_ds", 3, 1),
    ("checkpointer", "resume to the bit", 4, 1),
)
_ARROWS = (
    ((0, 0), (1, 0)),
    ((1, 0), (2, 0)),
    ((2, 0), (3, 0)),
    ((3, 0), (4, 0)),
    ((1, 0), (1, 1)),
    ((1, 1), (2, 1)),
    ((3, 1), (2, 1)),
    ((4, 0), (4, 1)),
    ((4, 1), (3, 1)),
)
_BOX = (156, 56)
_GAP = (36, 44)


def draw_parts(theme: Theme) -> str:
    """Return an SVG: the fields of a trainer, and what flows between them."""
    width, height = _BOX

    def corner(column, row):
        return 4 + column * (width + _GAP[0]), 4 + row * (height + _GAP[1])

    parts = [
        f'<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z" fill="{theme.quiet}"/>'
        "</marker>"
    ]
    for (column, row), (to_column, to_row) in _ARROWS:
        x, y = corner(column, row)
        to_x, to_y = corner(to_column, to_row)
        if row == to_row:
            forward = to_column > column
            start = (x + width if forward else x, y + height / 2)
            end = (to_x if forward else to_x + width, to_y + height / 2)
        else:
            start, end = (x + width / 2, y + height), (to_x + width / 2, to_y)
        parts.append(
            f'<path d="M{start[0]} {start[1]}L{end[0]} {end[1]}" fill="none" '
            f'stroke="{theme.quiet}" stroke-width="1.5" marker-end="url(#head)"/>'
        )
    for name, below, column, row in _FLOW:
        x, y = corner(column, row)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
            f'fill="{theme.box}" stroke="{theme.lines[row]}"/>'
        )
        middle = x + width / 2
        parts.append(_text(middle, y + 24, name, theme.text, "middle", size=14))
        parts.append(_text(middle, y + 43, below, theme.quiet, "middle"))
    right, bottom = corner(4, 1)
    return _svg(right + width + 4, bottom + height + 4, parts)


def _text(x, y, text, color, anchor="start", size=12) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}" '
        f'text-anchor="{anchor}">{text}</text>'
    )


def _svg(width, height, parts) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif">'
        f"{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    draw_all(pathlib.Path(sys.argv[1]))
