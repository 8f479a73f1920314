"""Images in folders, one folder per class."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kauldron.data.py.arrays import PathLike, paths_of
from kauldron.data.py.data_source import DataSourceBase

_EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFolder(DataSourceBase):
    """Images `root/<class>/<file>`, classes and files in sorted order.

    A record is `{"image": uint8[h, w, c], "label": int, "path": str}`. Images are
    decoded by Pillow.

    Attributes:
      root: The folder of class folders.
      classes: Which classes, in the order of their labels; by default all folders.
      extensions: Which files count as images, in any case.
      mode: "RGB", "L" (one channel), "RGBA", or another mode of Pillow.
      shuffle: Whether each epoch has an order of its own.
    """

    root: PathLike = dataclasses.field(kw_only=False)
    classes: Sequence[str] | None = dataclasses.field(default=None, kw_only=True)
    extensions: Sequence[str] = dataclasses.field(default=_EXTENSIONS, kw_only=True)
    mode: str = dataclasses.field(default="RGB", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "root", paths_of(self.root))
        object.__setattr__(self, "extensions", tuple(self.extensions))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))

    @functools.cached_property
    def data_source(self) -> ImageFiles:  # pyright: ignore
        return ImageFiles(self._list_files(), _image_reader(self.mode))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by label."""
        if self.classes is not None:
            return tuple(self.classes)
        if not os.path.isdir(self.root):
            raise FileNotFoundError(f"{self._name}: there is no such folder.")
        with os.scandir(self.root) as entries:
            found = [e.name for e in entries if e.is_dir() and e.name[0] != "."]
        return tuple(sorted(found))

    @property
    def _name(self) -> str:
        return f"ImageFolder({str(self.root)!r})"

    def _list_files(self) -> list[tuple[str, int]]:
        endings = tuple(extension.lower() for extension in self.extensions)
        files, others = [], []
        for label, name in enumerate(self.class_names):
            folder = os.path.join(self.root, name)
            if not os.path.isdir(folder):
                there = sorted(os.listdir(self.root))
                raise FileNotFoundError(
                    f"{self._name}: no folder for the class {name!r}; there are {there}."
                )
            for file in sorted(os.listdir(folder)):
                path = os.path.join(folder, file)
                (files if file.lower().endswith(endings) else others).append(
                    (path, label)
                )
        if not files:
            raise ValueError(
                f"{self._name} holds no image <class>/<file> that ends in"
                f" {', '.join(endings)}. Classes: {list(self.class_names)}; other files:"
                f" {[path for path, _ in others[:5]]}."
            )
        return files


class ImageFiles:
    """Random access to decoded images.

    Args:
      files: Path and label of each image.
      read: From path to `uint8[h, w, c]`.
    """

    gives_fresh_records = True

    def __init__(
        self, files: Sequence[tuple[str, int]], read: Callable[[str], np.ndarray]
    ):
        self._files = files
        self._read = read

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, label = self._files[index]
        try:
            image = self._read(path)
        except Exception as error:
            raise ValueError(
                f"{path} cannot be decoded as an image: {error}"
            ) from error
        return {"image": image, "label": label, "path": path}


def _image_reader(mode: str) -> Callable[[str], np.ndarray]:
    # One decoder, whatever else is installed: others round their grey values and JPEGs
    # differently. Imported here, before any background thread reads.
    try:
        importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(
            'kd.data.py.ImageFolder needs Pillow: pip install "kauldron[images]"'
        ) from error
    return functools.partial(_read_image, mode=mode)


def _read_image(path: str, *, mode: str) -> np.ndarray:
    import PIL.Image

    with PIL.Image.open(path) as image:
        pixels = np.array(image.convert(mode), np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels
