"""How configs are written: import blocks, proxies, lazy functions, default values."""
