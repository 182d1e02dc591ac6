"""Every error that empriv raises on purpose.

    EmprivError
    ├── InputError          an argument or an array cannot be used as given
    ├── SourceError         the rows cannot be read, or lack a column
    ├── QueryError          the query cannot be understood, or cannot be run
    ├── FileFormatError     a saved file is damaged, or of another version
    ├── CertificateError    noise misses its target, or may not be released
    ├── LedgerError         the ledger of releases cannot be read or written, or was tampered with
    │   └── RefusalError    its policy does not allow the release
    └── MissingExtraError   an optional package is not installed

A message is one sentence saying what the rule is and what was found, then, where it helps, ``Hint:``.
It never holds a row, an identifier or a query result: errors travel further than the data may.
"""


class EmprivError(Exception):
    """Base of all errors that empriv raises on purpose."""


class InputError(EmprivError, ValueError):
    """An argument or an array cannot be used as given."""


class SourceError(EmprivError):
    """The rows cannot be read, or lack what was asked of them."""


class QueryError(EmprivError):
    """The query cannot be understood, or cannot be run."""


class FileFormatError(EmprivError):
    """A saved file is damaged, or was written in a format this version does not know."""


class CertificateError(EmprivError):
    """Noise does not keep the promise asked of it, so that nothing is released."""


class LedgerError(EmprivError):
    """The ledger of releases cannot be read or written, or was tampered with."""


class RefusalError(LedgerError):
    """The ledger's policy does not allow the release; nothing was drawn or written."""


class MissingExtraError(EmprivError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"`{package}` is not installed. Hint: pip install 'empriv[{extra}]'.")
