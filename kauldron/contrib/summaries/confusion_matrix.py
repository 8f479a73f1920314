"""Which classes are confused with which."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import config_base, kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics import AutoState, Metric, sum_field
from kauldron.metrics.averages import align_mask

_NORMALIZE = (None, "true", "pred", "all")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ConfusionMatrix(config_base.UpdateFromRootCfg, Metric):
    """A text table: one row per true class, one column per predicted class.

    A terminal shows it below the table of a run, the board as a picture.

    Attributes:
      logits: Scores of shape `*b n`.
      labels: Right classes, integers of shape `*b 1`.
      mask: Weights of the examples, `*b 1`.
      normalize: Divide by the sum of each row (`"true"`), of each column (`"pred"`), or
        of everything (`"all"`).
      precision: Digits after the point of normalized or weighted entries.
      class_names: Names of the classes, by label. Unless given, those that `names_from`
        knows, if there are as many as classes, else the labels.
      names_from: Data that may have `class_names`; the trainer's `train_ds` unless set.
      sample_weight: Older name of `mask`.

    Example:
      >>> logits, labels = np.eye(2)[[0, 1, 1]], np.array([[0], [1], [0]])
      >>> confusion = ConfusionMatrix(class_names=["cat", "dog"])
      >>> print(confusion(logits=logits, labels=labels))
      true \\ pred | cat | dog
      ----------- | --- | ---
              cat |   1 |   1
              dog |   0 |   1
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    normalize: str | None = None
    precision: int = 2
    class_names: Sequence[str] | None = None
    names_from: Any = dataclasses.field(
        default=config_base.ROOT_CFG_REF.train_ds, repr=False, compare=False
    )
    sample_weight: kontext.Key | None = None
    # Data need not be hashable: a compiled step knows it by its identity.
    _names_id: int = dataclasses.field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names_id", id(self.names_from))
        if self.sample_weight is not None:
            if self.mask not in (None, self.sample_weight):
                raise ValueError(
                    "`sample_weight` is the older name of `mask`: set one."
                )
            object.__setattr__(self, "mask", self.sample_weight)
        if self.normalize not in _NORMALIZE:
            raise ValueError(
                f"normalize must be one of {_NORMALIZE}, not {self.normalize!r}."
            )
        if isinstance(self.class_names, str):
            raise TypeError(
                f"ConfusionMatrix.class_names takes a sequence of names, not the text "
                f"{self.class_names!r}."
            )
        if self.class_names is not None:
            names = tuple(str(name) for name in self.class_names)
            object.__setattr__(self, "class_names", names)

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ConfusionMatrix"]):
        """Weight of each pair of true and predicted class, `n n`."""

        matrix: Any = sum_field()

        def compute(self) -> str:
            matrix = _normalize(np.asarray(self.matrix, float), self.parent.normalize)
            names = self.parent.names(len(matrix))
            return _as_table(matrix, names, self.parent.precision)

    @typechecked
    def get_state(
        self,
        logits: Float["*b n"],
        labels: Int["*b 1"],
        mask: Array | None = None,
        sample_weight: Array | None = None,
    ) -> ConfusionMatrix.State:
        num_classes = logits.shape[-1]
        if self.class_names is not None and len(self.class_names) != num_classes:
            raise ValueError(
                f"ConfusionMatrix.class_names has {len(self.class_names)} names, but the "
                f"logits have {num_classes} classes."
            )
        weights = jnp.ones(labels.shape, jnp.float32)
        mask = sample_weight if mask is None else mask
        if mask is not None:
            weights *= align_mask(mask, labels.shape)
        true = jax.nn.one_hot(labels[..., 0], num_classes) * weights
        pred = jax.nn.one_hot(jnp.argmax(logits, axis=-1), num_classes)
        matrix = jnp.einsum(
            "...i,...j->ij", true, pred, precision=jax.lax.Precision.HIGHEST
        )
        return self.State(matrix=matrix)

    def names(self, num_classes: int) -> tuple[str, ...]:
        """Return what the classes are called."""
        if self.class_names is not None:
            return tuple(self.class_names)
        is_set = not isinstance(self.names_from, config_base.RootCfgRef)
        known = getattr(self.names_from, "class_names", None) if is_set else None
        if known is not None and len(known) == num_classes:
            return tuple(known)
        return tuple(str(label) for label in range(num_classes))


def _normalize(matrix: np.ndarray, by: str | None) -> np.ndarray:
    if by is None:
        return matrix
    axis = {"true": 1, "pred": 0, "all": None}[by]
    total = matrix.sum(axis=axis, keepdims=True)
    return matrix / np.where(total > 0, total, 1)


def _as_table(matrix: np.ndarray, names: Sequence[str], precision: int) -> str:
    is_counts = np.array_equal(matrix, matrix.round())
    digits = 0 if is_counts else precision
    cells = [[f"{entry:.{digits}f}" for entry in row] for row in matrix]
    names = [" ".join(name.replace("|", "/").split()) for name in names]
    width = max(len(text) for row in [names, *cells] for text in row)
    width = max(width, 2)
    corner = "true \\ pred"
    first = max(len(corner), width)
    lines = [
        " | ".join([corner.ljust(first), *(name.rjust(width) for name in names)]),
        " | ".join(["-" * first, *("-" * width for _ in names)]),
    ]
    for name, row in zip(names, cells):
        columns = [name.rjust(first), *(cell.rjust(width) for cell in row)]
        lines.append(" | ".join(columns))
    return "\n".join(lines)
