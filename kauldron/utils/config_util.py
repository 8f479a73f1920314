"""Config classes whose parts inherit values from the root: trainers, evaluators, ..."""

from kauldron.utils.base_config import BaseConfig as BaseConfig
from kauldron.utils.root_cfg_ref import ROOT_CFG_REF as ROOT_CFG_REF
from kauldron.utils.root_cfg_ref import RootCfgRef as RootCfgRef
from kauldron.utils.update_from_root import UpdateFromRootCfg as UpdateFromRootCfg
