"""How much a few labelled examples per class tell a linear classifier."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from kauldron import ckpts, config_base, kontext, metrics
from kauldron.batch_mask import BATCH_MASK
from kauldron.errors import error_prefix
from kauldron.evals.batches import every_record, on_devices, select_batches
from kauldron.evals.evaluator_base import EvaluatorBase
from kauldron.immutabledict import ImmutableDict
from kauldron.train.forward import forward
from kauldron.train.problems import Problem, caught
from kauldron.train.run import preemption
from kauldron.train.state import Auxiliaries, AuxiliariesOutput, Context

if TYPE_CHECKING:
    import flax.linen as nn

    from kauldron import data
    from kauldron.train import TrainState


_ALL = "z_fewshot_all"
_LABELS = ""  # their key beside the names of the features
_Examples: TypeAlias = tuple[dict[str, np.ndarray], np.ndarray]


class FewShotEvaluator(EvaluatorBase):
    """Fits linear classifiers on features of the model, in closed form.

    For each number of shots, a classifier is fitted to that many examples per class,
    for several strengths of regularisation; the best one on the validation data is
    reported on the test data, averaged over the seeds.

    Attributes:
      ds_train: Examples to choose the shots from.
      ds_val: Examples to choose the regularisation by.
      ds_test: Examples to report the accuracy of.
      metric_prefix: First part of the names of the values.
      num_classes: Number of classes; labels are 0, 1, ...
      num_shots: Numbers of examples per class.
      label_name: Key of the labels, `n` or `n 1`.
      repr_names: From a name to the key of features; what is not `n d` is flattened.
      l2_regs: Strengths of the regularisation to choose from.
      selected_repr: Name of the features whose accuracy is the main value.
      seed: Seed of the choice of examples, or several; the trainer's unless set.
      model: The trainer's unless set.
      model_method: Method of the model instead of `__call__`.
      init_transform: Changes the state before it is evaluated.
    """

    ds_train: data.Pipeline
    ds_val: data.Pipeline
    ds_test: data.Pipeline
    metric_prefix: str
    num_classes: int
    num_shots: Sequence[int]
    label_name: str
    repr_names: Mapping[str, str] = ImmutableDict()
    l2_regs: Sequence[float] = (64, 128, 256, 512, 1024)
    selected_repr: str = "pre_logits"
    seed: int | Sequence[int] = config_base.ROOT_CFG_REF.seed
    model: nn.Module = config_base.ROOT_CFG_REF.model
    model_method: str | None = None
    init_transform: ckpts.InitTransform = ckpts.NoopTransform()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = list(self.repr_names)
        if self.selected_repr not in names:
            if len(names) != 1:
                raise ValueError(
                    f"FewShotEvaluator {self.name!r}: selected_repr="
                    f"{self.selected_repr!r} is not among repr_names: "
                    f"{', '.join(names) or 'there are none'}."
                )
            object.__setattr__(self, "selected_repr", names[0])

    def find_problems(self, state: TrainState | None = None) -> list[Problem]:
        found = super().find_problems(state)
        for name in ("ds_train", "ds_val", "ds_test") if state is None else ():
            with caught(found, f"evals.{self.name}.{name}"):
                select_batches(getattr(self, name), owner=self.name)
        return found

    def evaluate(self, state: TrainState, step: int) -> AuxiliariesOutput:
        self._assert_root_cfg_resolved()
        state = self.init_transform.transform(state).replace(opt_state=None)
        parts = [
            self.compute_features(state, getattr(self, name), name)
            for name in ("ds_train", "ds_val", "ds_test")
        ]
        selected: dict[str, float] = {}
        everything: dict[str, float] = {}
        for representation in self.repr_names:
            for shots in self.num_shots:
                best, by_l2 = self._accuracy(representation, shots, parts)
                name = f"{self.metric_prefix}-{representation}-{shots}shot"
                everything[name] = best
                for l2, accuracy in zip(self.l2_regs, by_l2):
                    everything[f"z_{name}-{l2:.5f}"] = accuracy
                if representation == self.selected_repr:
                    selected[f"{self.metric_prefix}-{shots}shot"] = best
        self._write(step, selected, everything)
        return AuxiliariesOutput(metric_values={**selected, _ALL: everything})

    def _write(
        self, step: int, selected: dict[str, float], everything: dict[str, float]
    ) -> None:
        values = {f"metrics/{name}": value for name, value in selected.items()}
        values |= {f"{_ALL}/{name}": value for name, value in everything.items()}
        self.writer.write_step_metrics(
            step=step,
            aux=AuxiliariesOutput(metric_values=values),
            schedules={},
            log_summaries=False,
        )

    @property
    def seeds(self) -> list[int]:
        """The seeds of the choice of examples."""
        return np.atleast_1d(self.seed).tolist()

    #
    # Features
    #

    def compute_features(
        self, state: TrainState, ds: data.Pipeline, split: str
    ) -> _Examples:
        """Return the features of a whole data set, in its order.

        Args:
          state: The state of the model.
          ds: The data set.
          split: Its name, for messages.

        Returns:
          For each name of `repr_names` the features, `n d`, and the labels, `n`.
        """
        batched = select_batches(every_record(ds), owner=self.name)
        pieces: list[dict[str, Any]] = []
        with on_devices(batched, self.base_cfg.sharding.batch) as batches:
            for index, batch in enumerate(batches):
                preemption.raise_if_stop_requested()
                pieces.append(_to_host(self._features(index, state, batch)))
        if not pieces:
            raise ValueError(f"There is no batch in {split} of {self.name!r}: {ds!r}")
        arrays = {key: np.concatenate([p[key] for p in pieces]) for key in pieces[0]}
        is_real = arrays.pop(BATCH_MASK)
        with error_prefix(f"Labels ({self.label_name}) in {split}: "):
            labels = _check_labels(arrays.pop(_LABELS)[is_real], self.num_classes)
        return {
            name: array[is_real].reshape(len(labels), -1)
            for name, array in arrays.items()
        }, labels

    @functools.cached_property
    def aux(self) -> Auxiliaries:
        """Metrics that collect each representation, and the labels."""
        keys = {**self.repr_names, "labels": self.label_name}
        collected = {name: _Collect(values=key) for name, key in keys.items()}
        return Auxiliaries(losses={}, metrics=collected, summaries={})

    @functools.cached_property
    def _features(self) -> Any:
        """The compiled program; freed together with the evaluator."""
        return jax.jit(self._compute_features)

    def _compute_features(
        self, step_nr: Any, state: TrainState, batch: Any
    ) -> dict[str, Any]:
        with self.base_cfg.sharding.set_global_mesh():
            context = forward(
                Context.from_state_and_batch(state=state, batch=batch),
                model=self.model,
                rngs=self.base_cfg.rng_streams.eval_rngs(step_nr),
                is_training=False,
                method=self.model_method,
            )
        keys = {**self.repr_names, _LABELS: self.label_name}
        found = kontext.resolve_from_keypaths(context, keys)
        is_real = context.batch_mask
        if is_real is None:
            is_real = jnp.ones(len(found[_LABELS]), bool)
        return {**found, BATCH_MASK: is_real}

    #
    # Classifiers
    #

    def _accuracy(
        self, representation: str, shots: int, parts: list[_Examples]
    ) -> tuple[float, list[float]]:
        """Test accuracy of the best regularisation, and of each."""
        pairs = [(features[representation], labels) for features, labels in parts]
        (train, train_labels), *evaluated = pairs
        accuracies = []
        for seed in self.seeds:
            chosen = _choose(train_labels, shots, self.num_classes, seed)
            accuracies.append(
                fit_and_score(
                    train[chosen],
                    train_labels[chosen],
                    evaluated,
                    num_classes=self.num_classes,
                    l2_regs=self.l2_regs,
                )
            )
        val_mean, test_mean = np.mean(accuracies, axis=0)
        return float(test_mean[val_mean.argmax()]), test_mean.tolist()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _Collect(metrics.Metric):
    """All values, one after the other."""

    values: kontext.Key = kontext.REQUIRED

    @flax.struct.dataclass(kw_only=True)
    class State(metrics.AutoState["_Collect"]):
        values: Any = metrics.concat_field()

        def compute(self) -> np.ndarray:
            return np.asarray(self.values)

    def get_state(self, values: Any) -> _Collect.State:
        return self.State(values=values)


def _choose(labels: np.ndarray, shots: int, num_classes: int, seed: int) -> np.ndarray:
    """Indices of the first `shots` examples of each class, in an order by the seed."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in range(num_classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) < shots:
            raise ValueError(
                f"{shots} shots need as many training examples of each class, but class "
                f"{label} has {len(members)}."
            )
        chosen.append(members[:shots])
    return np.concatenate(chosen)


def _to_host(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(arrays, tiled=True)
    return jax.device_get(arrays)


def _check_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"they must be integers, got {labels.dtype}.")
    if labels.ndim > 2 or (labels.ndim == 2 and labels.shape[1] != 1):
        raise ValueError(f"they must have shape `n` or `n 1`, got {labels.shape}.")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"they must be in 0..{num_classes - 1}, got {labels.min()}..{labels.max()}."
        )
    return labels.reshape(-1)


#
# Linear classifiers in closed form, for many strengths of regularisation at once
#


_CONSTANT_FEATURE = 100.0
_SMALLEST_STD = 1e-5


def fit_and_score(
    features: np.ndarray,
    labels: np.ndarray,
    evaluated: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    num_classes: int,
    l2_regs: Sequence[float],
) -> list[list[float]]:
    """Fit ridge regressions to one-hot targets, and measure their accuracy.

    The training features `n d` also give the scale of the evaluated ones. Returns the
    accuracy for each evaluated pair of features and labels, for each strength.
    """
    features = features.astype(np.float64)
    mean, std = features.mean(0), features.std(0) + _SMALLEST_STD
    train = _standardize(features, mean, std)
    targets = np.where(labels[:, None] == np.arange(num_classes), 1.0, -1.0)
    weights = _ridge_weights(train, targets, l2_regs)
    return [
        [_accuracy(_standardize(x, mean, std) @ w, y) for w in weights]
        for x, y in evaluated
    ]


def _standardize(features: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    scaled = (features.astype(np.float64) - mean) / std
    constant = np.full((len(features), 1), _CONSTANT_FEATURE)
    return np.concatenate([scaled, constant], axis=1)


def _ridge_weights(
    x: np.ndarray, y: np.ndarray, l2_regs: Sequence[float]
) -> list[np.ndarray]:
    """Weights for each strength, from one eigen-decomposition of the smaller matrix."""
    if len(x) <= x.shape[1]:
        values, vectors = np.linalg.eigh(x @ x.T)
        left, right = x.T @ vectors, vectors.T @ y
    else:
        values, vectors = np.linalg.eigh(x.T @ x)
        left, right = vectors, vectors.T @ (x.T @ y)
    return [left @ (right / (values + l2)[:, None]) for l2 in l2_regs]


def _accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == labels).mean())
