"""The trainer, its step, and what keys look into."""

from kauldron.train import problems as problems
from kauldron.train.compat import ModelWithAux as ModelWithAux
from kauldron.train.forward import forward as forward
from kauldron.train.forward import forward_with_loss as forward_with_loss
from kauldron.train.hooks import EarlyStopping as EarlyStopping
from kauldron.train.hooks import Event as Event
from kauldron.train.hooks import Hook as Hook
from kauldron.train.rng_streams import RngStream as RngStream
from kauldron.train.rng_streams import RngStreams as RngStreams
from kauldron.train.run.preemption import Preempted as Preempted
from kauldron.train.setup import Setup as Setup
from kauldron.train.setup import TqdmInfo as TqdmInfo
from kauldron.train.state import Auxiliaries as Auxiliaries
from kauldron.train.state import AuxiliariesOutput as AuxiliariesOutput
from kauldron.train.state import AuxiliariesState as AuxiliariesState
from kauldron.train.state import CheckpointState as CheckpointState
from kauldron.train.state import Context as Context
from kauldron.train.state import TrainState as TrainState
from kauldron.train.train_step import TrainStep as TrainStep
from kauldron.train.trainer import Trainer as Trainer
from kauldron.writers import KDMetricWriter as KDMetricWriter
from kauldron.writers import MultiWriter as MultiWriter
from kauldron.writers import NoopWriter as NoopWriter
from kauldron.writers import WriterBase as WriterBase
