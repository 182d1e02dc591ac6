"""A process of a user who may do little: ``nobody.py LEDGER release|read|make``. Prints what it is told."""

from __future__ import annotations

import os
import sys

from asking import asked

import empriv.base.storage  # noqa: F401  # before the privileges are gone, since who has none may not read the interpreter
from empriv.errors import LedgerError
from empriv.ledger import Ledger

path, task = sys.argv[1:]
if os.geteuid() == 0:
    # To root every file is writable.
    os.setgid(65534)
    os.setuid(65534)
try:
    ledger = Ledger(path, create=task == "make")
    if task == "release":
        ledger.release(asked("new"), lambda: 1.0)
    print("intact" if ledger.verify().intact else "broken", len(ledger.entries()))
except LedgerError as error:
    print(error)
