"""The tree of nodes that a config is: storage, reading, writing, references."""
