"""Lists the Spark functions that an expression may call; every other call is refused.

None of these calls Java, reads files, settings or the environment, or generates rows. Names are
Spark's, as written in an expression; a test checks that Spark knows each of them.
"""

from typing import Final

_TEXT = """
ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains decode
elt encode endswith find_in_set format_number format_string initcap instr lcase left len length
levenshtein like locate lower lpad ltrim luhn_check mask octet_length overlay position printf
regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat
replace reverse right rlike rpad rtrim sentences soundex space split split_part startswith substr
substring substring_index to_binary to_char to_number to_varchar translate trim try_to_binary
try_to_number ucase unbase64 upper url_decode url_encode parse_url try_parse_url is_valid_utf8
make_valid_utf8 quote
"""
_NUMBERS = """
abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
degrees div e exp expm1 factorial floor greatest hex hypot isnan least ln log log10 log1p log2 mod
nanvl negative pi pmod positive pow power radians rand randn random rint round sec sign signum sin
sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex uniform width_bucket
bit_count bit_get getbit shiftleft shiftright shiftrightunsigned uuid
"""
_CONDITIONS = """
coalesce equal_null if ifnull isnotnull isnull nullif nullifzero nvl nvl2 zeroifnull typeof
"""
_TIME = """
add_months convert_timezone current_date current_timestamp curdate date date_add date_diff
date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp
make_date make_interval make_timestamp minute month monthname months_between next_day now quarter
second timestamp timestamp_micros timestamp_millis timestamp_seconds to_date to_timestamp
to_unix_timestamp to_utc_timestamp trunc try_to_timestamp unix_date unix_micros unix_millis
unix_seconds unix_timestamp weekday weekofyear year
"""
_COLLECTIONS = """
aggregate array array_append array_compact array_contains array_distinct array_except array_insert
array_intersect array_join array_max array_min array_position array_prepend array_remove
array_repeat array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at
exists filter flatten forall get map map_concat map_contains_key map_entries map_filter
map_from_arrays map_from_entries map_keys map_values map_zip_with named_struct reduce sequence
shuffle size slice sort_array str_to_map struct transform transform_keys transform_values
try_element_at zip_with
"""
_DATA = """
from_csv from_json get_json_object json_array_length json_object_keys schema_of_csv schema_of_json
to_csv to_json crc32 hash md5 sha sha1 sha2 xxhash64
"""
_CASTS = """
bigint binary boolean cast decimal double float int smallint string tinyint try_cast
"""
_BURNING = "work wait"
_OWN = f"instance_number {_BURNING}"
_AGGREGATES = """
any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and
bool_or collect_list collect_set corr count count_if covar_pop covar_samp every first first_value
kurtosis last last_value max max_by mean median min min_by mode percentile percentile_approx
regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope skewness some std stddev stddev_pop
stddev_samp string_agg listagg sum try_avg try_sum var_pop var_samp variance
"""
_KEEPING = """
array_agg collect_list collect_set listagg median mode percentile string_agg
"""

SCALAR: Final = frozenset(
    f"{_TEXT} {_NUMBERS} {_CONDITIONS} {_TIME} {_COLLECTIONS} {_DATA} {_CASTS} {_OWN}".split()
)
AGGREGATE: Final = frozenset(_AGGREGATES.split())
# Aggregates that keep every value of their group, or every distinct one. Without a window a group
# lasts for ever, and so would what they keep.
KEEPING: Final = frozenset(_KEEPING.split())
ALLOWED: Final = SCALAR | AGGREGATE
# Trilithon's own functions, for synthetic workloads: those that burn CPU or wait for a given time,
# and the number of the instance that works on the record, with which one instance can be slow.
BURNING: Final = frozenset(_BURNING.split())
OWN: Final = frozenset(_OWN.split())
