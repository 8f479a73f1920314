"""The flavour of `kauldron.typing`: older names and slightly different rules."""
