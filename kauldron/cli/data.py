"""`kauldron data ...`, from Python."""

from kauldron.cli.data_element_spec import ElementSpec as ElementSpec
