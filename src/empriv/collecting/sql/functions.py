"""Which functions a query may call: those whose answer follows from their arguments alone.

DuckDB's SQL is the language of queries on every engine, and DuckDB tells of each function whether it is a scalar, an
aggregate or a window function, and whether it always answers alike. The names below were taken from that list, less
those that see the clock, draw, or look at the catalogue although they are listed as answering alike. They are written
down rather than asked at run time, so that a new version of the engine opens nothing by itself; a test compares them
with the engine that is installed.
"""

from __future__ import annotations

from empriv.collecting.sql.pointing import nearest


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
_SYNONYMS = {
    "average": "avg", "mean": "avg", "std": "stddev_samp", "stdev": "stddev_samp", "var": "var_samp",
    "countif": "count_if", "countd": "count(DISTINCT ...)", "nunique": "count(DISTINCT ...)", "ifnull": "coalesce",
    "percentile": "quantile_cont", "len": "length", "todate": "strptime", "to_date": "strptime",
}  # fmt: skip


def meant_instead(name: str) -> str:
    """End of a sentence about a function that does not exist: a hint at the one that may have been meant."""
    meant = _SYNONYMS.get(name.lower())
    return nearest(name, _COMMON) if meant is None else f". Hint: did you mean {meant!r}?"
