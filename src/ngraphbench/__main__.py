"""``python -m ngraphbench``."""

from ngraphbench.cli import main

main()
