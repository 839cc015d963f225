"""Speed against other tools, side by side in one run: ``python -m benchmarks [name ...]``."""
