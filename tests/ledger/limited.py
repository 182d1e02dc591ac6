"""A process with little room: ``limited.py LEDGER BYTES error|die``. No file may grow beyond BYTES.

A write beyond it is an error, as on a full disk, or with ``die`` the kernel ends the process in the midst of it.
"""

from __future__ import annotations

import resource
import signal
import sys

from asking import asked

from empriv.errors import LedgerError
from empriv.ledger import Ledger

path, size, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ledger = Ledger(path)
release = asked("x" * 60_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == "die" else signal.SIG_IGN)
try:
    print(ledger.release(release, lambda: 1.5).answer, flush=True)
except LedgerError as error:
    print(error, flush=True)
