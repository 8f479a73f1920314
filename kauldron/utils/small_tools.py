"""Small tools, each from its own module; reached as `kd.utils.utils`."""

from kauldron.utils.checkify_ignore import checkify_ignore as checkify_ignore
from kauldron.utils.enum_iter import enum_iter as enum_iter
from kauldron.utils.json_tuples import json_list_to_tuple as json_list_to_tuple
