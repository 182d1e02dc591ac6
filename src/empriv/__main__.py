"""``python -m empriv``: the command line."""

from empriv.cli import main

main(prog_name="empriv")
