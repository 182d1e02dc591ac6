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
    """Base of all errors that empriv raises on purpose.

    Examples
    --------
    >>> try:
    ...     empriv.measure([1.0, 2.0], [[1.0]])
    ... except empriv.EmprivError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(EmprivError, ValueError):
    """An argument or an array cannot be used as given.

    Examples
    --------
    >>> empriv.measure([1.0, 2.0], [[1.0, 2.0, 3.0]])
    Traceback (most recent call last):
        ...
    empriv.errors.InputError: `q_without` must have shape (individuals, 2) to go with `q`, got shape (1, 3).
    """


class SourceError(EmprivError):
    """The rows cannot be read, or lack what was asked of them."""


class QueryError(EmprivError):
    """The query cannot be understood, or cannot be run.

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> empriv.collect(data, "avg(dely)")
    Traceback (most recent call last):
        ...
    empriv.errors.QueryError: The query uses a column 'dely' at line 1, column 5 that does not exist. ...
    """


class FileFormatError(EmprivError):
    """A saved file is damaged, or was written in a format this version does not know."""


class CertificateError(EmprivError):
    """Noise does not keep the promise asked of it, so that nothing is released."""


class LedgerError(EmprivError):
    """The ledger of releases cannot be read or written, or was tampered with."""


class RefusalError(LedgerError):
    """The ledger's policy does not allow the release; nothing was drawn or written.

    Examples
    --------
    Releasing needs the extra ``release``.

    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> noise = empriv.design_noise(audit, epsilon=0.5, delta=0.1, granularity=0.25)
    >>> strict = empriv.Ledger("strict.ledger", policy=empriv.Policy(epsilon=0.1, delta=0.0001))
    >>> audit.release(12.5, noise=noise, ledger=strict, database="2013-01-01")
    Traceback (most recent call last):
        ...
    empriv.errors.RefusalError: The ledger 'strict.ledger' refuses the release. ...
    """


class MissingExtraError(EmprivError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"`{package}` is not installed. Hint: pip install 'empriv[{extra}]'.")
