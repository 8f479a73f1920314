"""What a run shows while it goes on, in a terminal or a notebook."""
