"""The commands, a file each (or a file for each group, as `config show`)."""
