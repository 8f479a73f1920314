"""Where numbers, pictures and texts of a run go."""

from kauldron.writers import compat as compat
from kauldron.writers.kd_metric_writer import KDMetricWriter as KDMetricWriter
from kauldron.writers.kd_metric_writer import read_scalars as read_scalars
from kauldron.writers.writer import COLLECTION_NOT_SET as COLLECTION_NOT_SET
from kauldron.writers.writer import MultiWriter as MultiWriter
from kauldron.writers.writer import NoopWriter as NoopWriter
from kauldron.writers.writer import WriterBase as WriterBase
from kauldron.writers.writer import with_collection as with_collection
