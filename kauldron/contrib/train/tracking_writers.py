"""Writers that send values to a tracking service: MLflow, Weights & Biases."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from kauldron import status
from kauldron.files import write_atomically
from kauldron.writers import KDMetricWriter
from kauldron.writers.kd_metric_writer import BackgroundQueue
from kauldron.writers.png import to_uint8


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TrackingWriter(KDMetricWriter):
    """A writer whose files may be left out, as the service has the values.

    Attributes:
      pass_to_default_writer: Whether to write the files of `KDMetricWriter` too.
    """

    pass_to_default_writer: bool = True

    def resume(self, *, step: int) -> None:
        if self.pass_to_default_writer:
            super().resume(step=step)

    def _submit(self, kind: str, step: int, *args: Any) -> None:
        if self.pass_to_default_writer:
            super()._submit(kind, step, *args)


#
# MLflow
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLFlowMetricWriter(_TrackingWriter):
    """Sends numbers to the active MLflow run as `<collection>/<name>`.

    Texts (also the config, the element spec and the table of parameters) become
    artifacts `<collection>/<name>/<step>.md`. Without an active run one is started.
    Only the lead host sends anything.

    Attributes:
      pass_to_default_writer: Whether to write the files of `KDMetricWriter` too.
    """

    def check(self) -> None:
        if status.is_lead_host:
            _import_mlflow()

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        super().write_scalars(step, scalars)
        if status.is_lead_host:
            client, run_id = self._client()
            names = {_allowed(f"{self.collection}/{name}"): name for name in scalars}
            metrics = [
                _metric(name, scalars[original], step)
                for name, original in names.items()
            ]
            self._calls.submit(client.log_batch, run_id, metrics)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        super().write_texts(step, texts)
        if status.is_lead_host:
            client, run_id = self._client()
            for name, text in texts.items():
                path = f"{_allowed(f'{self.collection}/{name}')}/{step:09d}.md"
                self._calls.submit(client.log_text, run_id, text, path)

    def flush(self) -> None:
        super().flush()
        if "_calls" in vars(self):
            self._calls.wait()

    def close(self) -> None:
        calls = vars(self).pop("_calls", None)
        try:
            super().close()
        finally:
            if calls is not None:
                calls.close()

    @functools.cached_property
    def _calls(self) -> BackgroundQueue:
        """The thread that calls the server; the files neither wait nor fail with it."""
        return BackgroundQueue(f"kauldron-mlflow-{self.collection}")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_calls"}

    def _client(self) -> tuple[Any, str]:
        """Return a client, and the run of this thread, which other threads do not know."""
        mlflow = _import_mlflow()
        run = mlflow.active_run() or mlflow.start_run()
        return mlflow.MlflowClient(), run.info.run_id


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise ImportError(
            "kd.contrib.train.MLFlowMetricWriter needs mlflow: pip install "
            '"kauldron[mlflow]"'
        ) from None
    return mlflow


def _metric(name: str, value: float, step: int) -> Any:
    from mlflow.entities import Metric

    return Metric(name, float(value), int(time.time() * 1000), step)


def _allowed(name: str) -> str:
    """Return the name without characters that MLflow refuses."""
    return re.sub(r"[^\w\-. :/]", "_", name)


#
# Weights & Biases
#


_RUN_FILENAME = "wandb_run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WandbWriter(_TrackingWriter):
    """Sends numbers, pictures, histograms and texts to a W&B run.

    Values are called `<collection>/<name>` and drawn over the step of their collection.
    A run that is started again continues its W&B run: its id is kept in
    `<workdir>/wandb_run.json`. If a run is active (`wandb.init()` was called), that one
    is used. Only the lead host sends anything.

    Attributes:
      project: The W&B project.
      entity: The W&B user or team.
      name: Name of the run; the workdir's unless set.
      mode: `"online"`, `"offline"` or `"disabled"`; W&B's own choice unless set.
      init_options: More arguments of `wandb.init`.
      pass_to_default_writer: Whether to write the files of `KDMetricWriter` too.
    """

    project: str | None = None
    entity: str | None = None
    name: str | None = None
    mode: str | None = None
    init_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        if status.is_lead_host:
            _import_wandb()

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        super().write_scalars(step, scalars)
        self._log(step, lambda wandb: scalars)

    def write_images(self, step: int, images: Mapping[str, np.ndarray]) -> None:
        super().write_images(step, images)
        self._log(
            step,
            lambda wandb: {
                name: [wandb.Image(picture) for picture in _pictures(batch)]
                for name, batch in images.items()
            },
        )

    def write_histograms(
        self,
        step: int,
        arrays: Mapping[str, np.ndarray],
        *,
        num_buckets: int | None = None,
    ) -> None:
        super().write_histograms(step, arrays, num_buckets=num_buckets)
        self._log(
            step,
            lambda wandb: {
                name: wandb.Histogram(
                    np_histogram=np.histogram(
                        self._finite(name, array), bins=num_buckets or 30
                    )
                )
                for name, array in arrays.items()
            },
        )

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        super().write_texts(step, texts)
        self._log(
            step,
            lambda wandb: {
                name: wandb.Html(f"<pre>{html.escape(text)}</pre>")
                for name, text in texts.items()
            },
        )

    def write_config(self, config: Any) -> None:
        super().write_config(config)
        if config is not None and status.is_lead_host:
            values = json.loads(config.to_json())
            self._run().config.update(values, allow_val_change=True)

    def _log(self, step: int, make_values: Any) -> None:
        if not status.is_lead_host:
            return
        run, prefix = self._run(), self.collection
        values = make_values(_import_wandb())
        # W&B drops what comes with a smaller step than the last: each collection has a
        # step of its own, and evaluations may overtake the values of training.
        run.log(
            {f"{prefix}/step": step}
            | {f"{prefix}/{name}": value for name, value in values.items()}
        )

    def _run(self) -> Any:
        """Return the active run, or one that is started for this workdir."""
        wandb = _import_wandb()
        run = wandb.run or self._start(wandb)
        known: frozenset[str] = vars(self).get("_defined", frozenset())
        if run.id not in known:
            run.define_metric(f"{self.collection}/step", hidden=True)
            run.define_metric(
                f"{self.collection}/*", step_metric=f"{self.collection}/step"
            )
            object.__setattr__(self, "_defined", known | {run.id})
        return run

    def _start(self, wandb: Any) -> Any:
        workdir = epath.Path(self.workdir)
        file = workdir / _RUN_FILENAME
        run_id = json.loads(file.read_text())["id"] if file.exists() else None
        run = wandb.init(
            project=self.project,
            entity=self.entity,
            name=self.name or workdir.name,
            mode=self.mode,
            dir=str(workdir),
            id=run_id,
            resume="allow",
            **self.init_options,
        )
        write_atomically(file, json.dumps({"id": run.id}))
        return run


def _pictures(batch: np.ndarray) -> np.ndarray:
    pictures = to_uint8(batch)
    return pictures[..., 0] if pictures.shape[-1] == 1 else pictures


def _import_wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise ImportError(
            'kd.contrib.train.WandbWriter needs W&B: pip install "kauldron[wandb]"'
        ) from None
    return wandb
