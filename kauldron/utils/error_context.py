"""Older path of `kauldron.errors`."""

from kauldron.errors import error_prefix as error_prefix
from kauldron.errors import message_with_notes as message_with_notes
