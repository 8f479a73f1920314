"""A long evaluation that continues where it was interrupted."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import flax.struct
import jax
import numpy as np
from etils import epath

from kauldron import ckpts, kontext, status, writers
from kauldron.ckpts import items
from kauldron.data.iters import Iterator
from kauldron.evals.batches import abstract_states, batch_specs
from kauldron.evals.evaluator import Evaluator
from kauldron.evals.state_merging import MergePlan, StateMerger
from kauldron.files import write_atomically
from kauldron.train.run import preemption
from kauldron.train.state import AuxiliariesOutput, AuxiliariesState

if TYPE_CHECKING:
    from kauldron.train import TrainState

_KINDS = ("loss_values", "metric_values")


class CheckpointedEvaluator(Evaluator):
    """An `Evaluator` that saves what it has merged, every so many batches.

    The files are in `<workdir>/evals/<name>`, unless the checkpointer has a workdir of
    its own: while step 100 is evaluated in `step_100/`, afterwards the values in
    `step_100_done`. A step that is done is not evaluated again.

    Attributes:
      checkpointer: How often to save, counted in batches.
      log_tqdm_xm: Accepted for older configs; has no effect.
    """

    checkpointer: ckpts.Checkpointer
    log_tqdm_xm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache:
            raise TypeError(
                f"CheckpointedEvaluator {self.name!r} does not take `cache=True`: what "
                "was cached would be gone after an interruption."
            )

    def _is_own_step(self) -> bool:
        return type(self).step is Evaluator.step

    def apart_from_run(self, writer: writers.WriterBase, folder: epath.Path) -> Self:
        checkpointer = dataclasses.replace(
            self.checkpointer, workdir=folder / "evals" / self.name
        )
        return self.replace(writer=writer, checkpointer=checkpointer)

    def evaluate(self, state: TrainState, step: int) -> Any:
        self._assert_root_cfg_resolved()
        folder = self._folder / f"step_{step}"
        marker = self._folder / f"step_{step}_done"
        if marker.exists():
            return self._earlier_values(marker, step)
        with dataclasses.replace(self.checkpointer, workdir=folder) as checkpointer:
            state = self.prepare_state(state)
            merged = self.without_filler(
                lambda: self._merge_and_save(state, checkpointer)
            )
        self.writer.write_step_metrics(
            step=step, aux=merged, schedules={}, log_summaries=True
        )
        if status.is_lead_host:
            values = merged.compute(flatten=False)
            text = json.dumps(_to_json(values), default=repr)
            write_atomically(marker, text)
            folder.rmtree(missing_ok=True)
        return merged

    @property
    def _folder(self) -> epath.Path:
        folder = self.checkpointer.workdir
        if self.checkpointer._is_inherited("workdir"):
            folder = folder / "evals" / self.name
        return folder

    def _earlier_values(self, marker: epath.Path, step: int) -> AuxiliariesOutput:
        """Return what an earlier evaluation of this step computed, and log it if needed."""
        status.log(f"Evaluator {self.name} is done with step {step} already: {marker}")
        content = json.loads(marker.read_text())
        values = {kind: _from_json(content[kind]) for kind in _KINDS}
        logged = writers.read_scalars(epath.Path(self.writer.workdir) / self.name)
        if all(line["step"] != step for line in logged):
            self.writer.write_step_metrics(
                step=step, aux=_flat(values), schedules={}, log_summaries=False
            )
        return AuxiliariesOutput(**values)

    #
    # Batches
    #

    def _merge_and_save(
        self, state: TrainState, checkpointer: ckpts.Checkpointer
    ) -> AuxiliariesState:
        merger = StateMerger(self._memory.get("merge_plan"))
        with self.ds_iter as batches:
            done = self._restore(merger, batches, state, checkpointer)
            with self._progress(done) as progress:
                for batch in batches:
                    merger.add(self.checked_step(done, state, batch))
                    done += 1
                    is_stopping = preemption.is_stop_requested()
                    if is_stopping or done % checkpointer.save_interval_steps == 0:
                        _save(merger, batches, done, checkpointer)
                    preemption.raise_if_stop_requested()
                    progress.update(done)
        self._memory["merge_plan"] = merger.plan
        return self._not_empty(merger.result())

    def _restore(
        self,
        merger: StateMerger,
        batches: Iterator,
        state: TrainState,
        checkpointer: ckpts.Checkpointer,
    ) -> int:
        """Continue an interrupted evaluation; returns the number of batches it did."""
        done = checkpointer.latest_step
        if done is None:
            return 0
        stored = checkpointer.item_metadata(done)
        wanted = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), stored)
        item = _Interrupted(_MergedStates(**wanted), batches)
        begin = batches.get_state()
        restored = checkpointer.restore(item, step=done)
        if batches.get_state() == begin:  # the position is not known
            for _ in itertools.islice(batches, done):
                pass
        abstract = abstract_states(self, state, batch_specs(self))
        leaves = [restored.states.leaves[name] for name in sorted(wanted["leaves"])]
        if len(leaves) != len(jax.tree.leaves(abstract)):
            raise ValueError(
                f"{checkpointer.workdir} holds an interrupted evaluation of other "
                "losses, metrics or summaries: delete it to start again."
            )
        aux = jax.tree.unflatten(jax.tree.structure(abstract), leaves)
        merger.start_from(MergePlan(abstract), aux)
        status.log(f"Evaluator {self.name} continues after batch {done}.")
        return done


#
# What is saved
#


class _MergedStates(flax.struct.PyTreeNode, items.StandardCheckpointItem):
    leaves: dict[str, Any]


class _InterruptedFields(NamedTuple):
    states: Any
    ds_iter: Any


class _Interrupted(_InterruptedFields, items.TopLevelCheckpointItem):
    """An evaluation that is not finished: what was merged, and where the data is."""

    DEFAULT_ITEM = "states"


def _save(
    merger: StateMerger,
    batches: Iterator,
    done: int,
    checkpointer: ckpts.Checkpointer,
) -> None:
    merged = merger.result()
    assert merged is not None
    leaves = jax.tree.leaves(merged.finalize())
    states = _MergedStates(
        leaves={f"{index:06d}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    )
    checkpointer.save(_Interrupted(states, batches), step=done)


#
# Values as JSON
#


def _to_json(output: AuxiliariesOutput) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return np.asarray(value).tolist()

    return {kind: plain(dict(getattr(output, kind))) for kind in _KINDS}


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _from_json(item) for name, item in value.items()}
    return np.asarray(value) if isinstance(value, list) else value


def _flat(values: dict[str, Any]) -> AuxiliariesOutput:
    prefixes = {"loss_values": "losses", "metric_values": "metrics"}
    return AuxiliariesOutput(
        **{
            kind: kontext.flatten_with_path(tree, prefix=prefixes[kind], separator="/")
            for kind, tree in values.items()
        }
    )
