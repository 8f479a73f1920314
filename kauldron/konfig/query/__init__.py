"""What can be asked about configs: leaves, differences, selections, defaults."""
