"""Sweeps: which values the work units of an experiment differ in.

A sweep is an iterable of `SweepItem`, one for each work unit. It comes from a list
(`SimpleSweep`), from functions in the config file (`SweepFromCfg`, `KauldronSweep`), from
a search space (`Search`) or from the command line (`sweep_from_flags`).
"""

from kauldron.kxm.sweeps.flags import FlagSweep as FlagSweep
from kauldron.kxm.sweeps.flags import parse_values as parse_values
from kauldron.kxm.sweeps.flags import sweep_from_flags as sweep_from_flags
from kauldron.kxm.sweeps.functions import KauldronSweep as KauldronSweep
from kauldron.kxm.sweeps.functions import SweepFromCfg as SweepFromCfg
from kauldron.kxm.sweeps.functions import sweep_configs as sweep_configs
from kauldron.kxm.sweeps.functions import sweep_names as sweep_names
from kauldron.kxm.sweeps.items import Names as Names
from kauldron.kxm.sweeps.items import NoSweep as NoSweep
from kauldron.kxm.sweeps.items import SimpleSweep as SimpleSweep
from kauldron.kxm.sweeps.items import SweepInfo as SweepInfo
from kauldron.kxm.sweeps.items import SweepItem as SweepItem
from kauldron.kxm.sweeps.items import display_value as display_value
from kauldron.kxm.sweeps.search import Choice as Choice
from kauldron.kxm.sweeps.search import Range as Range
from kauldron.kxm.sweeps.search import Search as Search
