"""``python -m empriv``: the command line."""

from empriv.cli.main import main

main(prog_name="empriv")
