"""Values to MLflow."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping
from typing import Any

from kauldron.contrib.train.queued_writer import QueuedWriter
from kauldron.utils import status


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLFlowMetricWriter(QueuedWriter):
    """Sends numbers to the active MLflow run as `<collection>/<name>`.

    Texts (also the config, the element spec and the table of parameters) become
    artifacts `<collection>/<name>/<step>.md`. Without an active run one is started.
    Only the lead host sends anything.

    Attributes:
      pass_to_default_writer: Whether to write the files of `KDMetricWriter` too.
    """

    pass_to_default_writer: bool = True

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
            self._later(_log_metrics, client, run_id, metrics)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        super().write_texts(step, texts)
        if status.is_lead_host:
            client, run_id = self._client()
            for name, text in texts.items():
                path = f"{_allowed(f'{self.collection}/{name}')}/{step:09d}.md"
                self._later(client.log_text, run_id, text, path)

    def resume(self, *, step: int) -> None:
        if self.pass_to_default_writer:
            super().resume(step=step)

    def _submit(self, kind: str, step: int, *args: Any) -> None:
        if self.pass_to_default_writer:
            super()._submit(kind, step, *args)

    def _client(self) -> tuple[Any, str]:
        """A client, and the run of this thread: other threads do not know it."""
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


def _log_metrics(client: Any, run_id: str, metrics: list[Any]) -> None:
    client.log_batch(run_id, metrics=metrics)


def _allowed(name: str) -> str:
    """The name without signs that MLflow refuses."""
    return re.sub(r"[^\w\-. :/]", "_", name)
