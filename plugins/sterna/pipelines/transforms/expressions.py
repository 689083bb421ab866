"""Which expressions a transform's SQL may have, by the classes that Spark's analysis gives them.

A list of what is allowed: of each it is known that its value follows from its row alone, or from the set of rows that
it aggregates, in whatever order these come. What isn't on it is refused by name, functions of users and of later Sparks
among them. Sums of floating-point numbers depend on the order of their rows. The current time zone is no moment's: each
transform's session has UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

_PLAIN: Final = """
    Alias AttributeReference Literal SortOrder KnownNotNull KnownNullable PreciseTimestampConversion Invoke
    LambdaFunction NamedLambdaVariable GetStructField GetArrayItem GetMapValue GetArrayStructFields UpdateFields
    WithField DropField TryEval UpCast With CommonExpressionDef CommonExpressionRef TypedNullLiteral BinaryPredicate
    AggregateExpression WindowExpression WindowSpecDefinition SpecifiedWindowFrame UnspecifiedFrame CurrentRow
    UnboundedPreceding UnboundedFollowing Cast CheckOverflow Add Subtract Multiply Divide IntegralDivide Remainder
    Pmod UnaryMinus UnaryPositive Abs TryAdd TrySubtract TryMultiply TryDivide TryMod And Or Not EqualTo EqualNull
    EqualNullSafe GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In InSet Between IsNull IsNotNull IsNaN
    AtLeastNNonNulls Like ILike RLike LikeAll LikeAny NotLikeAll NotLikeAny CaseWhen Coalesce If NaNvl NullIf
    NullIfZero Nvl Nvl2 ZeroIfNull Greatest Least BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor
    ShiftLeft ShiftRight ShiftRightUnsigned AssertTrue RaiseError
"""
_NUMBERS: Final = """
    Acos Acosh Asin Asinh Atan Atan2 Atanh BRound Bin Cbrt Ceil Conv Cos Cosh Cot Csc EulerNumber Exp Expm1
    Factorial Floor Hex Hypot Log Log10 Log1p Log2 Logarithm Pi Pow Rint Round RoundCeil RoundFloor Sec Signum Sin
    Sinh Sqrt Tan Tanh ToDegrees ToRadians Unhex WidthBucket Crc32 Md5 Murmur3Hash Sha1 Sha2 XxHash64
    BitmapBitPosition BitmapBucketNumber BitmapCount MultiplyDTInterval MultiplyYMInterval MultiplyInterval
    DivideDTInterval DivideYMInterval DivideInterval
"""
_TEXTS: Final = """
    Ascii Base64 BitLength Chr ConcatWs Contains Decode Elt Encode StringDecode EndsWith FindInSet FormatNumber
    FormatString InitCap IsValidUTF8 Left Length Levenshtein Lower Luhncheck MakeValidUTF8 Mask OctetLength Overlay
    Quote RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Right Sentences SoundEx
    SplitPart StartsWith StringInstr StringLPad StringRPad BinaryPad StringLocate StringRepeat StringReplace
    StringSpace StringSplit StringSplitSQL StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight
    Substring SubstringIndex ToBinary ToCharacter ToNumber TryToBinary TryToNumber TryValidateUTF8 UnBase64 Upper
    ValidateUTF8 ParseUrl TryParseUrl TryUrlDecode UrlDecode UrlEncode AesDecrypt TryAesDecrypt TypeOf
"""
_TIMES: Final = """
    AddMonths ConvertTimezone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate
    DatePart DateSub DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear Extract FromUTCTimestamp FromUnixTime
    GetTimestamp Hour HoursOfTime LastDay MakeDTInterval MakeDate MakeInterval MakeTime MakeTimestamp
    MakeTimestampNTZ MakeYMInterval MicrosToTimestamp MillisToTimestamp Minute MinutesOfTime Month MonthName
    MonthsBetween NextDay ParseToDate ParseToTimestamp Quarter Second SecondWithFraction SecondsOfTime
    SecondsOfTimeWithFraction SecondsToTimestamp SubtractDates SubtractTimes SubtractTimestamps TimeDiff
    TimeTrunc TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff ToTime ToUTCTimestamp
    ToUnixTimestamp TruncDate TruncTimestamp TryMakeInterval MakeTimestampFromDateTime TryMakeTimestamp
    TryMakeTimestampFromDateTime UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay
    WeekOfYear WindowTime Year YearOfWeek ExtractIntervalYears ExtractIntervalMonths ExtractIntervalDays
    ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalSeconds ExtractANSIIntervalYears
    ExtractANSIIntervalMonths ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalSeconds CurrentTimeZone
"""
_NESTED: Final = """
    ArrayAggregate ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter
    ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
    ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Concat CreateArray CreateMap
    CreateNamedStruct ElementAt Flatten Get MapConcat MapContainsKey MapEntries MapFilter MapFromArrays
    MapFromEntries MapKeys MapValues MapZipWith Reverse Sequence Size Slice SortArray StringToMap TransformKeys
    TransformValues TryElementAt ZipWith CsvToStructs StructsToCsv GetJsonObject JsonObjectKeys JsonToStructs
    JsonTuple LengthOfJsonArray StructsToJson IsVariantNull ParseJson ToVariantObject VariantGet XPathBoolean
    XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString XmlToStructs Explode PosExplode
    Inline GeneratorOuter Stack SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfXml StructsToXml
"""
_AGGREGATES: Final = """
    Average BitAndAgg BitOrAgg BitXorAgg BitmapAndAgg BitmapConstructAgg BitmapOrAgg BoolAnd BoolOr Count CountIf
    HyperLogLogPlusPlus Max Median Min Percentile PercentileCont PercentileDisc RegrCount Sum CumeDist DenseRank
    PercentRank Rank
"""
ALLOWED: Final = frozenset(" ".join((_PLAIN, _NUMBERS, _TEXTS, _TIMES, _NESTED, _AGGREGATES)).split())
"""Simple names of classes below `org.apache.spark.sql.catalyst.expressions`."""
_STATIC: Final = ("org.apache.spark.sql.catalyst.", "org.apache.iceberg.spark.functions.")
_WITHOUT_TYPE: Final = frozenset({"WindowSpecDefinition", "SpecifiedWindowFrame", "UnspecifiedFrame"})
_WITH_SCHEMA: Final = frozenset({"JsonToStructs", "CsvToStructs", "XmlToStructs", "VariantGet"})
_DATED: Final = re.compile(r"\s*(?:[+-]?\d{4,}(?:-|\s*$)|epoch\s*$)", re.IGNORECASE)
_CURRENT_DAY_HINT: Final = (
    "takes the day on which the step runs where a text has none: take to_timestamp(x, format), or CAST(x AS "
    "TIMESTAMP_NTZ), and a constant with its date"
)
FLOATS: Final = frozenset({"float", "double"})
_ADDRESS_TYPES: Final = frozenset({"binary", "array", "map", "struct", "variant"})


_COLLECT: Final = frozenset({"CollectList", "CollectSet"})
_ORDERLESS: Final = frozenset({"SortArray", "Size", "ArrayMax", "ArrayMin", "ArrayContains"})


def iter_seq(seq: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    for index in range(seq.size()):
        yield seq.apply(index)


def expression_id(attribute: Any) -> int:
    """Return a plan's id of a column."""
    return int(attribute.exprId().id())


def class_name(expression: Any) -> str:
    """Return the simple name of an expression's class; of a Scala object without its sign."""
    return str(expression.getClass().getSimpleName()).removesuffix("$")


def find_disallowed(expressions: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield descriptions of expressions that can't be shown to give the same rows in steps and in a rebuild.

    Args:
        expressions: each with its class.
    """
    for name, expression in expressions:
        if name == "StaticInvoke":
            # What Spark calls for functions of its own, and for those of a catalog.
            if not str(expression.staticObject().getName()).startswith(_STATIC):
                yield f"it calls `{expression.functionName()}`, a function of which nothing is known"
        elif name not in ALLOWED:
            yield (
                f"it has `{_function_name(name, expression)}`, and it isn't known of that function that steps and a "
                "rebuild come to the same rows"
            )
        elif name not in _WITHOUT_TYPE and any(" collate " in kind for kind in leaf_types(expression.dataType())):
            yield f"it has a {expression.dataType().catalogString()}: by a collation other texts are equal"
        elif name in ("Sum", "Average"):
            yield from _float_faults(name, expression)
        elif name == "Cast" or name in _WITH_SCHEMA:
            yield from _current_day_faults(name, expression)
        elif name == "FormatString":
            yield from _address_faults(expression)
        elif name in ("ParseToTimestamp", "ParseToDate") and class_name(expression.replacement()) == "Cast":
            yield from _current_day_faults("Cast", expression.replacement())  # there is no format


def subexpressions(expression: Any) -> Iterator[Any]:
    """Yield the expressions that an expression is made of, and whose own values count.

    What `collect_list` and `collect_set` gather is in any order. Where it is sorted at once, or only counted or
    searched, that has no effect: then their argument alone counts. Floating-point numbers may be equal and differ.

    Args:
        expression: Spark's own object.
    """
    for index, child in enumerate(iter_seq(expression.children())):
        if index == 0 and class_name(expression) in _ORDERLESS and class_name(child) == "AggregateExpression":
            function = child.aggregateFunction()
            if class_name(function) in _COLLECT and leaf_types(function.dataType()).isdisjoint(FLOATS):
                yield function.child()
                if child.filter().isDefined():
                    yield child.filter().get()
                continue
        yield child


def _function_name(name: str, expression: Any) -> str:
    return str(expression.toString()).partition("(")[0] if name.endswith("UDF") else str(expression.prettyName())


def _float_faults(name: str, expression: Any) -> Iterator[str]:
    kind = str(expression.child().dataType().typeName())
    if str(expression.prettyName()).startswith("try_"):
        yield f"`{expression.prettyName()}` is NULL or not by the order of rows, where a part of the sum is too large"
    elif kind in FLOATS:
        yield (
            f"`{expression.prettyName()}` over {kind} depends on the order of rows in its last digits: "
            "cast to a DECIMAL"
        )
    elif name == "Average" and not kind.startswith(("decimal", "interval")):
        yield f"`avg` over {kind} sums floating-point numbers: take sum(x) / count(x), or cast to a DECIMAL"


def _address_faults(expression: Any) -> Iterator[str]:
    """Yield why a text has an address in memory: Java's text of a binary value or an array is one."""
    for kind in (child.dataType() for child in iter_seq(expression.children())):
        if kind.typeName() in _ADDRESS_TYPES:
            yield f"`format_string` of a {kind.catalogString()} has another text each time"


def _current_day_faults(name: str, expression: Any) -> Iterator[str]:
    """Yield why a text may become a time of the day on which it is read: `12:00`, and a constant such as `today`."""
    target_types = leaf_types(expression.dataType())
    if name in _WITH_SCHEMA:
        # A VARIANT of a CSV's text takes each value for what it looks like.
        day_types = target_types & ({"timestamp", "variant"} if name == "CsvToStructs" else {"timestamp"})
        for kind in sorted(day_types):
            yield f"`{expression.prettyName()}` with a {kind.upper()} {_CURRENT_DAY_HINT}"
        return
    if not any(kind.startswith(("timestamp", "date")) for kind in target_types):
        return
    child = expression.child()
    if not any(kind.startswith(("string", "char", "varchar", "variant")) for kind in leaf_types(child.dataType())):
        return
    if class_name(child) == "Literal" and _DATED.match(str(child.toString())):
        return
    # Spark's optimizer puts the day in the place of a constant, whichever type it is cast to.
    if "timestamp" in target_types or child.foldable():
        yield f"a cast of a text to {expression.dataType().catalogString()} {_CURRENT_DAY_HINT}"


def leaf_types(kind: Any) -> set[str]:
    """Return Spark's names of the types that a type is made of, without those of its fields.

    Args:
        kind: Spark's own object.
    """
    name = str(kind.typeName())
    if name == "struct":
        return {leaf for field in kind.fields() for leaf in leaf_types(field.dataType())}
    if name == "array":
        return leaf_types(kind.elementType())
    if name == "map":
        return leaf_types(kind.keyType()) | leaf_types(kind.valueType())
    return {name}
