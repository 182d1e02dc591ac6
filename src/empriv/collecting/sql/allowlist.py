"""What a query may read and call: its rows, the tables handed over, its own WITH, and functions of these alone.

A query may come from somebody who must not learn a row. Whatever it reads beside ``data`` is read with everyone in it,
so that nobody is left out of it: the result would be certified, and tell. Everything is refused here that is not known
to be harmless: kinds of nodes, functions, types and tables are listed by what is allowed. What is looked at is the tree
from which the text for an engine is printed (`printing`). Tree in, nothing out; nothing is run here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from empriv.collecting.sources import Connected, Databases, Select
from empriv.collecting.sql.printing import OWN_NAMES, called, check_characters, listed, nearest, placed
from empriv.errors import QueryError, SourceError


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


PURE = words(
    """
    abs acos acosh add age aggregate alias any_value apply approx_count_distinct approx_quantile approx_top_k
    arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg
    array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains array_cosine_distance
    array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product array_extract
    array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product
    array_intersect array_length array_negative_dot_product array_negative_inner_product array_pop_back
    array_pop_front array_position array_prepend array_push_back array_push_front array_reduce array_resize
    array_reverse array_reverse_sort array_select array_slice array_sort array_to_json array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip ascii asin asinh atan
    atan2 atanh avg bar base64 bin binom bit_and bit_count bit_length bit_or bit_position bit_xor bitstring
    bitstring_agg bool_and bool_or cardinality cbrt ceil ceiling century char_length character_length chr concat
    concat_ws contains corr cos cosh cot count count_if count_star countif covar_pop covar_samp cume_dist
    damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day
    dayname dayofmonth dayofweek dayofyear days_in_month decade decode degrees dense_rank divide editdist3 element_at
    encode ends_with entropy epoch epoch_ms epoch_ns epoch_us equi_width_bins era even exp factorial favg fdiv fill
    filter first first_value flatten floor fmod format format_bytes formatreadabledecimalsize formatreadablesize
    from_base64 from_binary from_hex from_json from_json_strict fsum gamma gcd generate_series generate_subscripts
    geomean geometric_mean get_bit grade_up greatest greatest_common_divisor group_concat hamming hash hex histogram
    histogram_exact hour if instr is_histogram_other_bin isfinite isinf isnan isodow isoyear jaccard jaro_similarity
    jaro_winkler_similarity json json_array json_array_length json_contains json_deep_merge json_exists json_extract
    json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object
    json_group_structure json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object
    json_pretty json_quote json_remove json_replace json_set json_strip_nulls json_structure json_transform
    json_transform_strict json_type json_valid json_value julian kahan_sum kurtosis kurtosis_pop lag last last_day
    last_value lcase lcm lead least least_common_multiple left left_grapheme len length length_grapheme levenshtein
    lgamma list list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct list_avg
    list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
    list_cosine_distance list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element
    list_entropy list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram
    list_indexof list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max
    list_median list_min list_mode list_negative_dot_product list_negative_inner_product list_pack list_position
    list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_sem
    list_skewness list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform
    list_unique list_value list_var_pop list_var_samp list_where list_zip listagg ln log log10 log2 lower lpad ltrim
    lttb mad make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat
    map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value map_from_entries
    map_keys map_values max max_by md5 md5_number md5_number_lower md5_number_upper mean median microsecond millennium
    millisecond min min_by minute mismatches mod mode month monthname multiply nanosecond nextafter nfc_normalize
    nth_value ntile nullif octet_length ord overlay parse_dirname parse_dirpath parse_filename parse_formatted_bytes
    parse_path path_join percent_rank pi position pow power prefix printf product quantile quantile_cont quantile_disc
    quarter radians range rank rank_dense reduce regexp_escape regexp_extract regexp_extract_all regexp_full_match
    regexp_matches regexp_replace regexp_split_to_array regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right right_grapheme round round_even roundbankers
    row row_number row_to_json rpad rtrim second sem set_bit sha1 sha256 sign signbit sin sinh skewness split
    split_part sqrt st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_geomfromgeojson st_geomfromwkb
    st_intersects_extent starts_with stddev stddev_pop stddev_samp str_split str_split_regex strftime string_agg
    string_split string_split_regex string_to_array strip_accents strlen strpos strptime struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values substr substring substring_grapheme subtract suffix sum sumkahan tan tanh time_bucket
    timezone timezone_hour timezone_minute to_base to_base64 to_binary to_centuries to_days to_decades to_hex to_hours
    to_json to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp
    to_weeks to_years translate trim trunc try_strptime typeof ucase unbin unhex unicode union_extract union_tag
    union_value upper url_decode url_encode uuid_extract_timestamp uuid_extract_version var_pop var_samp variance
    variant_array_length variant_contains variant_exists variant_extract variant_extract_string variant_group_object
    variant_keys variant_type variant_typeof wavg week weekday weekofyear weighted_avg xor year yearweek
    """
)
# Of many rows: aggregates, macros that are made of them, and what needs OVER.
OF_MANY = words(
    """
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
    arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and
    bool_or corr count count_if count_star countif covar_pop covar_samp cume_dist dense_rank entropy favg fill first
    first_value fsum geomean geometric_mean group_concat histogram histogram_exact json_group_array json_group_object
    json_group_structure kahan_sum kurtosis kurtosis_pop lag last last_value lead list listagg lttb mad max max_by mean
    median min min_by mode nth_value ntile percent_rank product quantile quantile_cont quantile_disc rank rank_dense
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy row_number sem skewness
    stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop var_samp variance variant_group_object wavg
    weighted_avg
    """
)
# Of one row, which give one value: those that make several rows of one, or take a lambda, are not among them.
ROWWISE = (PURE - OF_MANY - {"generate_subscripts", "unnest"}) | {"coalesce", "ifnull"}
# Written like calls, though the engine has them as syntax.
SYNTAX = frozenset({"coalesce", "ifnull", "try", "grouping", "grouping_id", "unnest", "columns"})
# Tables that follow from the arguments alone.
TABLES = frozenset({"range", "generate_series", "unnest"})
# An aggregate is named to these as a text.
BY_NAME = frozenset({"aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"})
# Answers that differ each time: of chance and of counters, and besides of the clock and of who asks.
DRAWING = words(
    """
    currval gen_random_uuid nextval rand random reservoir_quantile setseed setval uuid uuidv4 uuidv7
    """
)
CHANGING = DRAWING | words(
    """
    ago clock_timestamp current_connection_id current_date current_localtime current_localtimestamp current_query
    current_query_id current_time current_timestamp current_transaction_id get_current_time get_current_timestamp
    localtime localtimestamp now pg_conf_load_time pg_postmaster_start_time pg_sleep sleep_ms statement_timestamp today
    transaction_timestamp txid_current unix_timestamp
    """
)
# What looks at files, settings, the environment or the catalogue, or runs a text as SQL.
OUTSIDE = words(
    """
    current_catalog current_database current_role current_schema current_schemas current_setting current_user error
    getenv getvariable in_search_path json_deserialize_sql json_execute_serialized_sql json_serialize_plan
    json_serialize_sql query query_table read_blob read_csv read_csv_auto read_json read_json_auto read_parquet
    read_text session_user sniff_csv stats vector_type version which_secret write_log glob parquet_scan
    """
)
# Value functions that are written without parentheses, and read as columns where there is no such column.
BARE = words(
    """
    current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime
    localtimestamp session_user
    """
)
_COMMON = (
    "count", "sum", "avg", "min", "max", "median", "quantile_cont", "quantile_disc", "var_pop", "var_samp",
    "stddev_pop", "stddev_samp", "covar_pop", "covar_samp", "corr", "regr_slope", "bool_and", "bool_or", "count_if",
    "abs", "round", "floor", "ceil", "sqrt", "ln", "log10", "exp", "power", "greatest", "least", "coalesce", "nullif",
    "date_trunc", "date_part", "strptime", "epoch", "length", "lower", "upper", "replace", "substring",
)  # fmt: skip
# What other tools call it.
SYNONYMS = {
    "average": "avg", "mean": "avg", "std": "stddev_samp", "stdev": "stddev_samp", "var": "var_samp",
    "countif": "count_if", "countd": "count(DISTINCT ...)", "nunique": "count(DISTINCT ...)", "ifnull": "coalesce",
    "percentile": "quantile_cont", "len": "length", "todate": "strptime", "to_date": "strptime", "nvl": "coalesce",
    "isnull": "coalesce", "sumif": "sum(...) FILTER (WHERE ...)", "avgif": "avg(...) FILTER (WHERE ...)",
}  # fmt: skip


def meant_instead(name: str) -> str:
    """End of a sentence about a function that does not exist: a hint at the one that may have been meant."""
    meant = SYNONYMS.get(name.lower())
    return nearest(name, _COMMON) if meant is None else f". Hint: did you mean {meant!r}?"


_ROWS = "data"
ONLY = "The query must read nothing but `data`, the tables handed over, and what it names itself by WITH"
ALIKE = "The query must give the same result each time"
RANDOMISED = "Hint: write a randomised query as a Python function of the rows, with `draws`."
_CLOCK = "Hint: write the time that is meant, such as DATE '2020-12-31'."

# Kinds of nodes that a SELECT is made of. Not among them: samples, INTO, locks, parameters, DESCRIBE, SUMMARIZE,
# SHOW, and versions of a table.
_PARTS = words(
    """
    Alias Aliases CTE Column ColumnDef Comprehension Cube DataType DataTypeParam Distinct Except Fetch Filter From
    Group GroupingSets Having HavingMax Identifier IgnoreNulls Intersect Interval IntervalSpan JSONKeyValue JSONPath
    JSONPathKey JSONPathRecursive JSONPathRoot JSONPathSlice JSONPathSubscript JSONPathUnion JSONPathWildcard Join
    Lambda Lateral Limit Offset Order Ordered OverflowTruncateBehavior Pivot PivotAlias Qualify
    RespectNulls Rollup Select Slice Star Subquery Table TableAlias Tuple Union UnpivotColumns Values Var Where Window
    WindowSpec With WithinGroup
    """
)
# Literals, operators, and functions that are written as such.
_OPERATORS = words(
    """
    Add Adjacent All And Any Array ArrayContainedBy ArrayContainsAll ArrayOverlaps AtTimeZone Between BitwiseAnd
    BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor Boolean Bracket Case Cast Collate DPipe Distance
    Div Dot EQ Escape Exists Extract Factorial GT GTE Glob ILike If In IntDiv Is JSONExtract JSONExtractScalar Kwarg LT
    LTE Like Literal Map Mod Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Or Overlaps Paren Pow PropertyEQ RegexpILike
    RegexpLike SimilarTo Struct Sub ToMap TryCast VarMap
    """
)
# Types by the names that the tree has for them, and ways to compare texts: both are written without quotes.
_TYPES = words(
    """
    ARRAY BIGDECIMAL BIGINT BINARY BIT BLOB BOOLEAN CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INT INT128 INTERVAL JSON
    LIST MAP NCHAR NULL NVARCHAR SMALLINT STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TIMESTAMP_MS
    TIMESTAMP_NS TIMESTAMP_S TIMETZ TIME_NS TINYINT UBIGINT UINT UINT128 USMALLINT UTINYINT UUID VARBINARY VARCHAR
    """
)
_COLLATIONS = words("binary c nfc noaccent nocase posix")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# What an expression of one row is made of, beside functions.
_ROWWISE = (_OPERATORS - {"All", "Any", "Exists"}) | words(
    """
    Column ColumnDef DataType DataTypeParam Identifier Interval IntervalSpan JSONPath JSONPathKey JSONPathRoot
    JSONPathSubscript Tuple Var
    """
)
DEEPEST = 300  # nodes above a node, in a query that people write or a program does
DEEP = f"The query must not be nested so deep: {DEEPEST} levels are read."


def check(tree: exp.Expr, text: str = "") -> None:
    """Refuse a query that does more than compute from tables; which tables is for `check_tables`.

    Parameters
    ----------
    tree : the query
    text : what the user wrote, in which the place is shown
    """
    for node in tree.walk():
        _check_words(node)
        if isinstance(node, exp.Identifier) and node.name.lower().startswith(OWN_NAMES):
            raise QueryError(f"The query must not use the name {node.name!r}: names of this kind are empriv's own.")
        if isinstance(node, exp.PositionalColumn):
            raise QueryError("The query must name its columns, got a position (#1). Hint: write the column's name.")
        if isinstance(node, exp.TableSample):
            raise QueryError(f"{ALIKE}, but takes a sample of the rows. {RANDOMISED}")
        if isinstance(node, exp.CTE) and node.alias.lower() == _ROWS:
            raise QueryError("The query must not name a part of its own `data` (by WITH): the rows are called so.")
        if isinstance(node, exp.Table):
            _check_table(node, text)
        elif isinstance(node, exp.Column):
            if not node.table and node.name.lower() in BARE and not node.this.args.get("quoted"):
                raise _refused(node.name.lower(), text, node.name)
        elif isinstance(node, exp.Func) and _kind(node) not in _OPERATORS:
            _check_call(node, text)
        elif _kind(node) not in _PARTS and _kind(node) not in _OPERATORS:
            raise QueryError(f"The query must be made of plain SELECTs, but has {_kind(node).upper()}.")


def follows_from_row(tree: exp.Expr) -> bool:
    """Whether an expression surely is a value of one row: columns, literals, operators, and functions of these."""
    for node in tree.walk():
        kind = _kind(node)
        if isinstance(node, exp.Func) and kind not in _OPERATORS:
            name = called(node)
            if isinstance(node, exp.AggFunc) or name not in ROWWISE:
                return False
        elif kind not in _ROWWISE:
            return False
    return True


def check_tables(tree: exp.Expr, tables: Collection[str], text: str = "") -> None:
    """Refuse a query that reads a table other than ``tables``, which hold ``data``, and its own WITH."""
    known = {name.lower() for name in tables}
    for table, visible in tables_of(tree, frozenset()):
        if not isinstance(table.this, exp.Identifier) or table.name.lower() in known | visible:
            continue
        others = [name for name in tables if name.lower() != _ROWS]
        hint = f"the rows are called {_ROWS}: write FROM {_ROWS}"
        if others:
            hint = f"there are {listed([_ROWS, *others])}"
        where, caret = placed(text, table.this.meta.get("start"))
        raise QueryError(f"The query reads a table {table.name!r}{where} that does not exist. Hint: {hint}.{caret}")


def reads_tables(expression: str) -> bool:
    """Whether an expression reads more than the columns of its row; what cannot be parsed is taken to."""
    try:
        row_expression(expression)
    except QueryError:
        return True
    return False


def row_expression(text: str) -> exp.Expr:
    """The tree of an expression that follows from one row alone."""
    check_characters(text, "An expression")
    try:
        statements = parse(text, dialect="duckdb")
    except SqlglotError:
        raise QueryError("An expression of columns must be SQL that can be parsed.") from None
    except RecursionError:
        raise QueryError(DEEP) from None
    (tree,) = statements if len(statements) == 1 else (None,)
    if tree is None or isinstance(tree, exp.Query | exp.DDL | exp.DML | exp.Command):
        raise QueryError("An expression of columns must be one expression.")
    without_comments(tree)
    if tree.find(exp.Query) is not None or tree.find(exp.Table) is not None:
        raise QueryError("An expression of columns must not hold a SELECT.")
    check(exp.select(tree.copy()).from_(_ROWS))
    if not follows_from_row(tree):
        raise QueryError("An expression of columns must be a value of one row, without aggregates and windows.")
    return tree


def without_comments(tree: exp.Expr) -> None:
    """Take comments out of a tree: written back, one might end somewhere else; and refuse a tree that is too deep."""
    levels = [(tree, 0)]
    while levels:
        node, depth = levels.pop()
        node.comments = None
        if depth > DEEPEST:
            raise QueryError(DEEP)
        levels += [(child, depth + 1) for child in node.iter_expressions()]


def one_select(sql: str, dialect: str = "duckdb") -> exp.Expr:
    """The tree of the one SELECT that a source is; it may read files, since its author sees the rows.

    Raises
    ------
    SourceError : if the text is no statement, several, or one that does not only select
    """
    try:
        statements = [statement for statement in parse(sql, dialect=dialect) if statement is not None]
        statements = [statement for statement in statements if not isinstance(statement, exp.Semicolon)]
        check_characters(sql, "A source given as SQL")
    except QueryError as error:
        raise SourceError(str(error)) from None
    except (SqlglotError, RecursionError):
        raise SourceError("A source given as SQL must be one SELECT, got a text that cannot be parsed.") from None
    if len(statements) != 1:
        raise SourceError(f"A source given as SQL must be one SELECT, got {len(statements)} statements.")
    (statement,) = statements
    while isinstance(statement, exp.Subquery) and statement.is_wrapper:
        statement = statement.this
    writes = statement.find(exp.Into, exp.Command, exp.DDL, exp.DML, exp.Lock, exp.Copy)
    if not isinstance(statement, exp.Select | exp.SetOperation) or writes is not None:
        culprit = statement if writes is None else writes
        raise SourceError(f"A source given as SQL must be one SELECT, got {type(culprit).__name__.upper()}.")
    try:
        for node in statement.walk():
            _check_words(node)
    except QueryError as error:
        raise SourceError(str(error).replace("The query", "A source given as SQL", 1)) from None
    return statement


def _check_words(node: exp.Expr) -> None:
    """Refuse what is printed without quotes and is no plain word or number: types, collations, units, and others."""
    if isinstance(node, exp.DataType):
        kind = node.this.value if isinstance(node.this, exp.DataType.Type) else str(node.this)
        if kind not in _TYPES or node.args.get("kind") is not None or node.args.get("values"):
            raise QueryError("The query must cast to types that every DuckDB has, got another.")
    elif isinstance(node, exp.Collate):
        if node.expression.name.lower() not in _COLLATIONS or isinstance(node.expression, exp.Dot):
            raise QueryError(f"The query must compare texts by one of {listed(sorted(_COLLATIONS))}, got another.")
    elif isinstance(node, exp.Var):
        if _WORD.fullmatch(node.name) is None:
            raise QueryError("The query must have a plain word where SQL has one, got other characters.")
    elif isinstance(node, exp.Literal) and not node.is_string and _NUMBER.fullmatch(node.name) is None:
        raise QueryError("The query must write numbers as 12, 1.5 or 1e6, got another form.")


def _check_table(table: exp.Table, text: str) -> None:
    if isinstance(table.this, exp.Func):
        name = called(table.this)
        if name not in TABLES:
            raise QueryError(f"{ONLY}, but calls {name}() for a table.{_caret_at_call(name, text)}")
    elif not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
        parts = ".".join(part.name for part in table.parts)
        raise QueryError(f"{ONLY}, but reads {parts}. Hint: write {table.name} alone.")


def _check_call(node: exp.Func, text: str) -> None:
    name = called(node)
    if isinstance(node.parent, exp.Table):
        return  # seen with the table
    arguments = [value for value in node.iter_expressions() if not isinstance(value, exp.Identifier)]
    if name == "age" and len(arguments) != 2:
        raise _refused("age", text, "age", known=CHANGING | {"age"})
    if name in BY_NAME:
        named = [str(argument.this).lower() for argument in arguments[1:2] if argument.is_string]
        if not PURE.issuperset(named) or not named:
            raise QueryError(f"The query must name the aggregate of {name}() as a text, one that it may call itself.")
    if name not in PURE and name not in SYNTAX:
        raise _refused(name, text, name)


def _refused(name: str, text: str, written: str, *, known: Collection[str] = CHANGING) -> QueryError:
    """Why a function must not be called."""
    if name in known:
        return QueryError(f"{ALIKE}, but calls {name}(). {RANDOMISED if name in DRAWING else _CLOCK}")
    if name in OUTSIDE:
        return QueryError(f"{ONLY}, but calls {name}().{_caret_at_call(name, text)}")
    place = re.search(rf"\b{re.escape(written)}\s*\(", text, re.IGNORECASE)
    where, caret = placed(text, place.start() if place else None)
    written = place.group().rstrip(" (\n\t") if place else written
    return QueryError(f"The query calls a function {written!r}{where} that does not exist{meant_instead(name)}{caret}")


def _kind(node: exp.Expr) -> str:
    return type(node).__name__


def tables_of(node: exp.Expr, visible: frozenset[str]) -> Iterator[tuple[exp.Table, frozenset[str]]]:
    """Every table, with the names of WITH that are known where it stands."""
    if isinstance(node, exp.Table):
        yield node, visible
    with_ = node.args.get("with_") or node.args.get("with")
    if isinstance(with_, exp.With):
        for cte in with_.expressions:
            named = visible | {cte.alias.lower()}
            # Without RECURSIVE, a part that names itself means another table.
            yield from tables_of(cte.this, named if with_.args.get("recursive") else visible)
            visible = named
    for child in node.iter_expressions():
        if child is not with_:
            yield from tables_of(child, visible)


def _caret_at_call(name: str, text: str) -> str:
    place = re.search(rf"\b{re.escape(name)}\s*\(", text, re.IGNORECASE)
    return placed(text, place.start() if place else None)[1]


_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}
_HINT = (
    "Hint: compute it in the query, where people are left out of it, or for each person apart (GROUP BY, PARTITION BY)."
)


def check_sources(data: Databases) -> None:
    """Refuse a source given as SQL whose rows may hold what other people did."""
    for part in data.parts:
        if isinstance(part, Select):
            across = _across_rows(one_select(part.sql), data.individual)
        elif isinstance(part, Connected) and part.sql is not None:
            across = _across_rows(one_select(part.sql, _DIALECTS[part.kind]), data.individual)
        else:
            continue
        if across:
            raise SourceError(
                "A source given as SQL must make each row of one person's rows, since leaving a person out must take "
                f"out all that they did, got {across}. {_HINT}"
            )


def check_tables_of_people(select: exp.Expr, columns: Mapping[str, Sequence[str]], whose: Sequence[str]) -> None:
    """Refuse a query that reads a table with the individual's column other than joined to ``data`` by it.

    ``columns`` are those of each table, ``whose`` the individual's.
    """
    people = {
        name.lower() for name, own in columns.items()
        if name.lower() != _ROWS and whose and set(map(str.lower, whose)) <= set(map(str.lower, own))
    }  # fmt: skip
    for table, named in tables_of(select, frozenset()):
        if table.name.lower() in people - named and not _joined_by(table, [name.lower() for name in whose]):
            keys = ", ".join(whose)
            raise QueryError(
                f"The query must join {table.name} to data by {keys}: it holds rows of people, and whoever is left "
                f"out of data must be left out of it too. Hint: FROM data JOIN {table.name} USING ({keys})."
            )


def _joined_by(table: exp.Table, keys: Sequence[str]) -> bool:
    """Whether a table is joined to ``data``, so that its rows need a partner there with the same keys."""
    join = table.parent
    if not isinstance(join, exp.Join) or join.method or join.side not in ("", "LEFT") or join.kind not in ("", "INNER"):
        return False
    select = join.parent
    start = select.args.get("from_") or select.args.get("from") if isinstance(select, exp.Select) else None
    first = start.this if isinstance(start, exp.From) else None
    if not isinstance(first, exp.Table) or first.name.lower() != _ROWS:
        return False
    return set(keys) <= joined_columns(join, first.alias_or_name, table.alias_or_name)


def joined_columns(join: exp.Join, one: str, other: str) -> set[str]:
    """Names of columns of which both tables must have the same value, by USING or by ``one.x = other.x``."""
    equal = {item.name.lower() for item in join.args.get("using") or ()}
    for part in conjuncts(join.args.get("on")):
        sides = [side for side in part.iter_expressions() if isinstance(side, exp.Column)]
        if isinstance(part, exp.EQ) and {side.table.lower() for side in sides} == {one.lower(), other.lower()}:
            equal |= {sides[0].name.lower()} & {sides[1].name.lower()}
    return equal


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that all must hold."""
    if condition is None:
        return []
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _across_rows(tree: exp.Expr, individual: Sequence[str]) -> str:
    """What a SELECT computes across rows of several people, in words; "" if nothing."""
    if isinstance(tree, exp.SetOperation):
        return _across_rows(tree.left, individual) or _across_rows(tree.right, individual)
    keys = {name.lower() for name in individual}
    reads = Counter(_table_named(table) for table in tree.find_all(exp.Table))
    if any(count > 1 for count in reads.values()):
        return "a table that is read twice"
    for node in tree.walk():
        if isinstance(node, exp.Limit | exp.Offset | exp.Fetch | exp.TableSample):
            return "a LIMIT or a sample"
        if isinstance(node, exp.Window):
            if not keys <= {item.name.lower() for item in node.args.get("partition_by") or ()}:
                return f"a window that is not PARTITION BY {listed(individual)}"
        elif _aggregates(node) and not _grouped(node, keys):
            return f"an aggregate that is not GROUP BY {listed(individual)}"
    return ""


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Func) and called(node) in OF_MANY)


def _grouped(node: exp.Expr, keys: Collection[str]) -> bool:
    """Whether an aggregate is taken within groups of one person's rows."""
    wrapper = node.parent
    if isinstance(wrapper, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        wrapper = wrapper.parent
    if isinstance(wrapper, exp.Window):
        return True  # looked at as a window
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    if not isinstance(group, exp.Group) or select is None:
        return False
    if group.args.get("all"):
        return set(keys) <= {item.alias_or_name.lower() for item in select.selects}
    names = set()
    for item in group.expressions:
        if isinstance(item, exp.Literal) and not item.is_string and 0 < int(item.name) <= len(select.selects):
            names.add(select.selects[int(item.name) - 1].alias_or_name.lower())
        else:
            names.add(item.name.lower())
            names |= {shown.alias_or_name.lower() for shown in select.selects if shown.unalias() == item}
    simple = not any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets"))
    return simple and set(keys) <= names


def _table_named(table: exp.Table) -> str:
    """The same for all ways to write one table or file."""
    if not isinstance(table.this, exp.Identifier):
        return str(table.this.sql()).lower()
    name = ".".join(part.name for part in table.parts)
    return str(Path(name).resolve()) if Path(name).exists() else name.lower()
