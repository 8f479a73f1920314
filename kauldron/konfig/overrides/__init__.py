"""How configs are loaded and changed from the command line."""
