"""What is in a batch: pictures and numbers."""

from __future__ import annotations

import base64
import html
from typing import Any

import numpy as np

from kauldron import kontext
from kauldron.inspect.specs import array_spec_text
from kauldron.inspect.views import View, make_table, show
from kauldron.writers.png import encode_animated_png, encode_png, to_uint8

#
# Pictures and videos
#


_MAX_PICTURES = 8
_HEIGHTS = (100, 250)  # of a picture on the screen, at least and at most


def plot_batch(batch: Any) -> Any:
    """Show the pictures and videos of a batch.

    Arrays `b h w c` with 1, 3 or 4 channels are pictures, arrays `b t h w c` with 1 or
    3 channels videos; the first 8 of each are shown. Floats outside of [0, 1] are scaled
    to that range, and the caption says so.

    Args:
      batch: A tree of arrays.

    Returns:
      In a notebook nothing, it is displayed. Elsewhere a view: `print` lists what it
      shows and `view.save("batch.html")` writes a page.
    """
    return show(batch_view(batch))


def batch_view(batch: Any) -> View:
    """Return what `plot_batch` shows."""
    flat = kontext.flatten_with_path(batch, prefix="batch")
    figures = [
        _figure(name, array)
        for name, array in ((name, np.asarray(leaf)) for name, leaf in flat.items())
        if is_picture(array) or is_video(array)
    ]
    if not figures:
        text = "There is no picture (b h w c) and no video (b t h w c) in the batch."
        return View(html=f"<p>{text}</p>", text=text)
    return View(
        html="".join(body for _, body in figures),
        text="\n".join(caption for caption, _ in figures),
        title="Batch",
    )


def is_picture(array: np.ndarray) -> bool:
    return array.ndim == 4 and array.shape[-1] in (1, 3, 4) and _has_colors(array)


def is_video(array: np.ndarray) -> bool:
    return array.ndim == 5 and array.shape[-1] in (1, 3) and _has_colors(array)


def _has_colors(array: np.ndarray) -> bool:
    is_float = array.dtype.kind == "f" or "float" in array.dtype.name
    return bool(array.size) and (is_float or array.dtype == np.uint8)


def _figure(name: str, array: np.ndarray) -> tuple[str, str]:
    """Return caption and HTML of the pictures of one array."""
    caption = f"{name}: {array_spec_text(array)}"
    shown = array[:_MAX_PICTURES]
    if len(array) > len(shown):
        caption += f", the first {len(shown)}"
    if array.dtype != np.uint8:
        shown, note = _in_unit_range(shown.astype(np.float32))
        caption += note
    encode = encode_png if array.ndim == 4 else encode_animated_png
    height = int(np.clip(array.shape[-3], *_HEIGHTS))
    pictures = [_img(encode(picture), height) for picture in to_uint8(shown)]
    body = f"<p>{html.escape(caption)}</p><div>{' '.join(pictures)}</div>"
    return caption, body


def _in_unit_range(values: np.ndarray) -> tuple[np.ndarray, str]:
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if low >= 0 and high <= 1:
        return values, ""
    scale = (high - low) or 1.0
    return (values - low) / scale, f", scaled from [{low:.4g}, {high:.4g}]"


def _img(png: bytes, height: int) -> str:
    data = base64.b64encode(png).decode()
    style = f"height:{height}px;image-rendering:pixelated"
    return f"<img style='{style}' src='data:image/png;base64,{data}'>"


#
# Numbers
#


_COLUMNS = ("Name", "Dtype", "Shape", "Min", "Max", "Mean", "StdDev")


def get_batch_stats(batch: Any) -> Any:
    """Return dtype, shape and range of everything in a batch.

    Args:
      batch: A tree of arrays, on the host or on devices.

    Returns:
      A `pandas.DataFrame` (without pandas, a plain table) with a row per array: `Name`
      (its key, `batch.<path>`), `Dtype`, `Shape`, `Min`, `Max`, `Mean`, `StdDev`. What
      is not a number, or empty, has `-`.

    Example:
      >>> stats = get_batch_stats({"x": np.array([[1.0, 3.0]])})
      >>> list(stats["Name"]), list(stats["Mean"])
      (['batch.x'], [2.0])
    """
    flat = kontext.flatten_with_path(batch, prefix="batch")
    rows = [describe_array(name, leaf) for name, leaf in flat.items()]
    return make_table(_COLUMNS, rows)


def describe_array(name: str, leaf: Any) -> dict[str, Any]:
    """Return the row of one array."""
    array = np.asarray(leaf)
    row = dict.fromkeys(_COLUMNS, "-")
    row |= {"Name": name, "Dtype": str(array.dtype), "Shape": array.shape}
    if array.size and is_number(array):
        values = array.astype(np.float64)
        row |= {
            "Min": float(values.min()),
            "Max": float(values.max()),
            "Mean": float(values.mean()),
            "StdDev": float(values.std()),
        }
    return row


def is_number(array: np.ndarray) -> bool:
    """Return whether these are real numbers; also bfloat16 and the small floats."""
    return array.dtype.kind in "biuf" or "float" in array.dtype.name
