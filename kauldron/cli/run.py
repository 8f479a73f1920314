"""`kauldron run ...`, from Python."""

from kauldron.cli.run_eval_shape import EvalShape as EvalShape
from kauldron.cli.run_memory import Memory as Memory
from kauldron.cli.train import Train as Train
