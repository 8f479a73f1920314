"""Names of the files at the top of a workdir."""

CONFIG_FILENAME = "config.json"
ELEMENT_SPEC_FILENAME = "element_spec.json"
