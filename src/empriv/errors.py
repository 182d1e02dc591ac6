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
    """The rows cannot be read, or lack what was asked of them.

    Examples
    --------
    >>> data = empriv.databases("nothing.csv", database="day", individual="who")
    >>> empriv.collect(data, "count(*)")
    Traceback (most recent call last):
        ...
    empriv.errors.SourceError: The file must exist, got 'nothing.csv'.
    """


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
    """A saved file is damaged, or was written in a format this version does not know.

    Examples
    --------
    >>> with open("broken.empriv", "w") as file:
    ...     _ = file.write("no archive")
    >>> empriv.load("broken.empriv")
    Traceback (most recent call last):
        ...
    empriv.errors.FileFormatError: The file is damaged, or was not written by empriv.
    """


class CertificateError(EmprivError):
    """Noise does not keep the promise asked of it, so that nothing is released.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05)
    >>> noise.release(100.0)
    Traceback (most recent call last):
        ...
    empriv.errors.CertificateError: Noise must have a granularity that you declare, ...
    """


class LedgerError(EmprivError):
    """The ledger of releases cannot be read or written, or was tampered with.

    Examples
    --------
    >>> empriv.Ledger("nothing.ledger", create=False)
    Traceback (most recent call last):
        ...
    empriv.errors.LedgerError: The ledger must be a file, got 'nothing.ledger', which does not exist. ...
    """


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
    """An optional package is needed and not installed.

    Examples
    --------
    >>> print(empriv.MissingExtraError("opendp", "release"))
    `opendp` is not installed. Hint: pip install 'empriv[release]'.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"`{package}` is not installed. Hint: pip install 'empriv[{extra}]'.")
