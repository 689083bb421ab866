"""The engine's part that converts times and floats of a MariaDB or MySQL to text; runs in the engine's process.

First rows come as the server's text and changes as the log's bytes, and the engine makes Java objects of both: a date
with a zero in it is null then, 31 February is in March, the year 0 is 1900, and a FLOAT has the six digits that the
server writes. So both paths are patched before the engine starts, by Javassist, which is among its jars. They pass the
server's text of the value.

The engine also fails at what it can't read in any table. So rows of tables that aren't captured are skipped, and
unreadable rows of one that is, or a statement that can't be parsed, are reported to the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sterna.pipelines.cdc.postgres_converter import TYPE
from sterna.pipelines.cdc.schema_history import named_tables

CAPTURED_TABLES = "sterna.followed"
"""The setting that names the tables, as a list in JSON."""
MOMENTS = ("DATE", "DATETIME", "TIMESTAMP", "TIME", "YEAR")
"""First words of the types whose values are read as the server's text."""
FLOATS = ("FLOAT", "FLOAT4", "FLOAT8", "REAL", "DOUBLE")
"""First words of the types whose values are read as the shortest text of a double."""
_MAX_REASON_CHARS = 300  # a parser lists all words that it would have accepted
_BINLOG = "io.debezium.connector.binlog"
_CONVERTER = f"{_BINLOG}.event.SternaText"
_SPI = "io.debezium.spi.converter.CustomConverter"
_SCHEMA = "org.apache.kafka.connect.data.SchemaBuilder"
_COLUMN = "io.debezium.relational.Column"

_WORD = """
public static String word(String type) {
  String upper = type == null ? "" : type.trim().toUpperCase(java.util.Locale.ROOT);
  int end = 0;
  while (end < upper.length() && Character.isLetterOrDigit(upper.charAt(end))) end++;
  return upper.substring(0, end);
}"""
_KIND = f"""
public static String kind(String type) {{
  String word = word(type);
  if ({" || ".join(f'word.equals("{type_name}")' for type_name in MOMENTS)}) return word;
  if ({" || ".join(f'word.equals("{type_name}")' for type_name in FLOATS)}) return "FLOAT";
  return null;
}}"""
_CONFIGURE = "public void configure(java.util.Properties value) { }"
_REGISTER = f"""
public void converterFor(io.debezium.spi.converter.ConvertedField value, {_SPI}$ConverterRegistration to) {{
  io.debezium.spi.converter.RelationalColumn column = (io.debezium.spi.converter.RelationalColumn) value;
  String kind = kind(column.typeName());
  if (kind == null) return;
  {_SCHEMA} built = {_SCHEMA}.string().optional();
  built.parameter("{TYPE}", kind);
  to.register(built, this);
}}"""
# A float becomes the double of the same value: its own shortest text is that of another double.
_CONVERT = """
public Object convert(Object value) {
  if (value == null) return null;
  if (value instanceof Float) return Double.toString(((Float) value).doubleValue());
  return value.toString();
}"""
_DIGITS = """
public static String digits(long value, int count) {
  String text = Long.toString(value);
  while (text.length() < count) text = "0" + text;
  return text;
}"""
_FRACTION = """
public static String fraction(int scale, com.github.shyiko.mysql.binlog.io.ByteArrayInputStream in)
    throws java.io.IOException {
  if (scale == 0) return "";
  int length = (scale + 1) / 2;
  long value = big(in.read(length), length);
  return "." + digits(value, 2 * length).substring(0, scale);
}"""
_BIG = """
public static long big(byte[] bytes, int count) {
  long value = 0L;
  for (int at = 0; at < count; at++) value = (value << 8) | (long) (bytes[at] & 0xff);
  return value;
}"""
_DAY = """
public static String day(long year, long month, long day) {
  return digits(year, 4) + "-" + digits(month, 2) + "-" + digits(day, 2);
}"""
_CLOCK = """
public static String clock(long hours, long minutes, long seconds) {
  return digits(hours, 2) + ":" + digits(minutes, 2) + ":" + digits(seconds, 2);
}"""
_MOMENT = """
public static String moment(long seconds, String fraction) {
  if (seconds == 0L && fraction.replace(".", "").replace("0", "").length() == 0)
    return "0000-00-00 00:00:00" + fraction;
  java.time.LocalDateTime value = java.time.LocalDateTime.ofEpochSecond(seconds, 0, java.time.ZoneOffset.UTC);
  return day((long) value.getYear(), (long) value.getMonthValue(), (long) value.getDayOfMonth()) + " "
      + clock((long) value.getHour(), (long) value.getMinute(), (long) value.getSecond()) + fraction;
}"""
# The formats of the log:
# https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
_READERS = {
    "deserializeDate": """{
      long value = (long) $1.readInteger(3);
      return S.day(value >>> 9, (value >>> 5) & 15L, value & 31L); }""",
    "deserializeTime": """{
      long value = (long) $1.readInteger(3);
      if (value >= 0x800000L) value -= 0x1000000L;
      long plain = Math.abs(value);
      return (value < 0L ? "-" : "") + S.clock(plain / 10000L, plain / 100L % 100L, plain % 100L); }""",
    "deserializeTimeV2": """{
      int length = ($1 + 1) / 2;
      long value = S.big($2.read(3 + length), 3 + length) - (1L << (23 + 8 * length));
      long plain = Math.abs(value);
      long whole = plain >>> (8 * length);
      long part = plain & ((1L << (8 * length)) - 1L);
      String text = (value < 0L ? "-" : "") + S.clock((whole >>> 12) & 1023L, (whole >>> 6) & 63L, whole & 63L);
      return $1 == 0 ? text : text + "." + S.digits(part, 2 * length).substring(0, $1); }""",
    "deserializeDatetime": """{
      long value = $1.readLong(8);
      return S.day(value / 10000000000L, value / 100000000L % 100L, value / 1000000L % 100L) + " "
          + S.clock(value / 10000L % 100L, value / 100L % 100L, value % 100L); }""",
    "deserializeDatetimeV2": """{
      long value = S.big($2.read(5), 5) - 0x8000000000L;
      long months = value >>> 22;
      return S.day(months / 13L, months % 13L, (value >>> 17) & 31L) + " "
          + S.clock((value >>> 12) & 31L, (value >>> 6) & 63L, value & 63L) + S.fraction($1, $2); }""",
    "deserializeTimestamp": """{ return S.moment($1.readLong(4), ""); }""",
    "deserializeTimestampV2": """{
      long seconds = S.big($2.read(4), 4);
      return S.moment(seconds, S.fraction($1, $2)); }""",
    "deserializeYear": """{
      long value = (long) $1.readInteger(1);
      return S.digits(value == 0L ? 0L : 1900L + value, 4); }""",
}
# The same within a JSON, where each has six digits of a fraction.
_IN_JSON = {
    "parseDate": """{
      long value = readInt64() >> 41;
      $1.value(S.day((value >>> 5) / 13L, (value >>> 5) % 13L, value & 31L)); }""",
    "parseTime": """{
      long value = readInt64();
      long plain = Math.abs(value);
      long whole = plain >>> 24;
      String text = S.clock((whole >>> 12) & 1023L, (whole >>> 6) & 63L, whole & 63L);
      $1.value((value < 0L ? "-" : "") + text + "." + S.digits(plain & 0xffffffL, 6)); }""",
    "parseDatetime": """{
      long value = readInt64();
      long whole = value >> 24;
      long months = whole >>> 22;
      String clock = S.clock((whole >>> 12) & 31L, (whole >>> 6) & 63L, whole & 63L);
      String day = S.day(months / 13L, months % 13L, (whole >>> 17) & 31L);
      $1.value(day + " " + clock + "." + S.digits(value & 0xffffffL, 6)); }""",
}
_FIELD = f"{{ if ({_CONVERTER}.kind($3.typeName()) != null) return $1.getString($2); }}"
# The server writes all digits of a product.
_COLUMNS = f"""{{
  java.util.List wanted = new java.util.ArrayList();
  if ($_.size() != $2.columns().size()) throw new IllegalStateException("not all columns of " + $2.id());
  for (int at = 0; at < $_.size(); at++) {{
    {_COLUMN} column = ({_COLUMN}) $2.columns().get(at);
    String name = (String) $_.get(at);
    String kind = {_CONVERTER}.kind(column.typeName());
    String value = "FLOAT".equals(kind) ? name + " * 1e0" : name;
    wanted.add(kind == null ? name : "CAST(" + value + " AS CHAR) AS " + name);
  }}
  $_ = wanted; }}"""


_TROUBLE = f"{_BINLOG}.event.SternaTrouble"
_ROWS = "com.github.shyiko.mysql.binlog.event"
_TROUBLE_FIELDS = (
    "public static java.util.function.Consumer listener;",
    "public static java.util.Set followed = new java.util.HashSet();",
)
_IS_FOLLOWED = """
public static boolean isFollowed(String table) {
  return followed.contains(table.toLowerCase(java.util.Locale.ROOT));
}"""
_TELL = """
public static void report(String table, String said) { listener.accept(new String[] { table, "", "", said }); }"""
_TELL_OF = """
public static void tellOf(String table, Throwable error) {
  if (isFollowed(table)) report(table, "a change of it can't be read: " + words(error));
}"""
# The message of such an error may repeat a value, or a statement with a password in it: the engine's own log has it.
_WORDS = """
public static String words(Throwable error) {
  String said = error.getClass().getSimpleName();
  while (error.getCause() != null) { error = error.getCause(); said = said + "; " + error.getClass().getSimpleName(); }
  return said;
}"""
# Members of what reads rows of the log: its map of tables is private.
_NAME = f"""
protected String sternaName(long table) {{
  {_ROWS}.TableMapEventData map = ({_ROWS}.TableMapEventData) tableMapEventByTableId.get(Long.valueOf(table));
  return map == null ? "" : map.getDatabase() + "." + map.getTable();
}}"""
_SKIPS = f"""
protected boolean sternaSkips(long table, java.util.BitSet columns) {{
  {_ROWS}.TableMapEventData map = ({_ROWS}.TableMapEventData) tableMapEventByTableId.get(Long.valueOf(table));
  if (map == null) return false;
  String name = sternaName(table);
  if (!{_TROUBLE}.isFollowed(name)) return true;
  if (map.getColumnMetadata() == null) {{
    {_TROUBLE}.report(name, "a column is of a type that isn't read");
    return true;
  }}
  if (columns.cardinality() == map.getColumnTypes().length) return false;
  {_TROUBLE}.report(name, "a change lacks columns: its session had a binlog_row_image other than FULL");
  return true;
}}"""
_MAP = f"""{{
  {_ROWS}.TableMapEventData map = new {_ROWS}.TableMapEventData();
  map.setTableId($1.readLong(6));
  $1.skip(3L);
  map.setDatabase($1.readZeroTerminatedString());
  $1.skip(1L);
  map.setTable($1.readZeroTerminatedString());
  int count = $1.readPackedInteger();
  map.setColumnTypes($1.read(count));
  $1.readPackedInteger();
  try {{
    int[] details = readMetadata($1, map.getColumnTypes());
    map.setColumnNullability($1.readBitSet(count, true));
    map.setColumnMetadata(details);
  }} catch (RuntimeException error) {{
    map.setColumnMetadata(null);
  }}
  return map; }}"""
_SKIP_ONE = "{ if (sternaSkips($1, $2)) return new java.util.LinkedList(); }"
_SKIP_BOTH = """{
  if (sternaSkips($1.getTableId(), $1.getIncludedColumnsBeforeUpdate())
      || sternaSkips($1.getTableId(), $1.getIncludedColumns())) return new java.util.LinkedList(); }"""
# Rows without a map of their table can't be attributed.
_FAILED = f"""{{
  if (sternaName({{0}}).isEmpty()) throw $e;
  {_TROUBLE}.tellOf(sternaName({{0}}), $e);
  return new java.util.LinkedList(); }}"""
# Events of rows that the reader doesn't support, and skips. Each begins with the number of its table. A MariaDB's
# compressed rows have types unknown to the reader: they get the name of one that no server writes any more.
_TYPE = f"{_ROWS}.EventType"
_UNREAD = f"""{{
  String said = $2.getEventType() == {_TYPE}.PARTIAL_UPDATE_ROWS_EVENT
      ? "a change has a part of a JSON value only: its session had binlog_row_value_options PARTIAL_JSON"
      : $2.getEventType() == {_TYPE}.PRE_GA_WRITE_ROWS ? "a change is compressed: log_bin_compress was on" : null;
  if (said != null) {{
    $1.enterBlock((int) $2.getDataLength() - checksumLength);
    Long number = Long.valueOf($1.readLong(6));
    $1.skipToTheEndOfTheBlock();
    $1.skip((long) checksumLength);
    {_ROWS}.TableMapEventData map = ({_ROWS}.TableMapEventData) tableMapEventByTableId.get(number);
    if (map == null) throw new IllegalStateException("rows of a table that the log doesn't name");
    String name = map.getDatabase() + "." + map.getTable();
    if ({_TROUBLE}.isFollowed(name)) {_TROUBLE}.report(name, said);
    return null;
  }} }}"""
_QUERY_COMPRESSED, _ROWS_COMPRESSED = 165, (166, 171)  # in MariaDB's log_event.h
_NUMBER = f"""{{
  if ($1 == {_QUERY_COMPRESSED}) throw new IllegalStateException("a statement is compressed: log_bin_compress was on");
  if ($1 >= {_ROWS_COMPRESSED[0]} && $1 <= {_ROWS_COMPRESSED[1]}) return {_TYPE}.PRE_GA_WRITE_ROWS; }}"""
_PARSING = f"""{{
  String database = currentSchema() == null ? "" : currentSchema();
  String said = "a statement that names it isn't understood: " + {_TROUBLE}.words($e);
  {_TROUBLE}.listener.accept(new String[] {{ "", database, $1, said }});
  throw new io.debezium.text.ParsingException(null, {_TROUBLE}.words($e)); }}"""
_DISPATCHED = f"""{{
  if ($e instanceof InterruptedException || Thread.currentThread().isInterrupted()) throw $e;
  {_TROUBLE}.tellOf($2.identifier(), $e);
  return true; }}"""
# A row that continues nevertheless comes after the report of its table, and is skipped.
_INVALID = f'{{ {_TROUBLE}.tellOf($1 == null ? "" : $1.id().identifier(), $e); return; }}'
_UNKNOWN = f"""{{
  if ($4 != null && {_TROUBLE}.isFollowed($4.identifier())) {{
    {_TROUBLE}.report($4.identifier(), "a change was read of a table whose schema is unknown");
    return;
  }} }}"""


def settings() -> Mapping[str, str]:
    """Return the engine's settings that name the converter."""
    return {"converters": "sterna", "sterna.type": _CONVERTER}


def install(captured: Iterable[str], send: Callable[[Mapping[str, str]], object]) -> None:
    """Patch the engine's classes before any of them is used; the JVM has been started.

    Args:
        captured: tables, as `database.table`.
        send: called with what isn't read: the table as `trouble`, and why.
    """
    import jpype

    pool = jpype.JClass("javassist.ClassPool").getDefault()
    _install_trouble(pool, captured, send)
    _patch_rows(pool)
    _patch_statements(pool)
    _install_converter(pool)
    ct_class = pool.get(f"{_BINLOG}.event.RowDeserializers")
    for name, body in _READERS.items():
        ct_class.getDeclaredMethod(name).setBody(body.replace("S.", f"{_CONVERTER}."))
    _load(ct_class, f"{_BINLOG}.event.StopEventData")
    ct_class = pool.get(f"{_ROWS}.deserialization.json.JsonBinary")
    for name, body in _IN_JSON.items():
        ct_class.getDeclaredMethod(name).setBody(body.replace("S.", f"{_CONVERTER}."))
    _load(ct_class, f"{_ROWS}.deserialization.json.ValueType")
    ct_class = pool.get(f"{_BINLOG}.jdbc.BinlogFieldReader")
    ct_class.getDeclaredMethod("readField").insertBefore(_FIELD)
    _load(ct_class, f"{_BINLOG}.jdbc.BinlogSystemVariables")
    ct_class = pool.get("io.debezium.relational.RelationalSnapshotChangeEventSource")
    ct_class.getDeclaredMethod("getPreparedColumnNames").insertAfter(_COLUMNS)
    _load(ct_class, "io.debezium.relational.TableId")


def _install_trouble(pool: Any, captured: Iterable[str], send: Callable[[Mapping[str, str]], object]) -> None:
    import jpype

    ct_class = pool.makeClass(_TROUBLE)
    for source in _TROUBLE_FIELDS:
        ct_class.addField(jpype.JClass("javassist.CtField").make(source, ct_class))
    for method in (_WORDS, _IS_FOLLOWED, _TELL, _TELL_OF):
        ct_class.addMethod(jpype.JClass("javassist.CtMethod").make(method, ct_class))
    _load(ct_class, f"{_BINLOG}.event.StopEventData")

    trouble_class, names = jpype.JClass(_TROUBLE), dict.fromkeys(captured, ())

    def accept(arguments: Any) -> None:
        table, database, statement, reason = (str(argument) for argument in arguments)
        for table_name in named_tables(statement, database, names) if statement else [table]:
            trouble_class.followed.remove(table_name.lower())  # none of its rows is read any more
            send({"trouble": table_name, "said": reason[:_MAX_REASON_CHARS]})

    trouble_class.listener = jpype.JProxy("java.util.function.Consumer", dict={"accept": accept})
    for name in names:
        trouble_class.followed.add(name.lower())


def _patch_rows(pool: Any) -> None:
    """Skip rows that aren't captured, or that lack columns."""
    import jpype

    folder, neighbour = f"{_ROWS}.deserialization", f"{_ROWS}.deserialization.ChecksumType"
    ct_class = pool.get(f"{folder}.TableMapEventDataDeserializer")
    map_of = f"(L{_ROWS.replace('.', '/')[:-6]}/io/ByteArrayInputStream;)L{_ROWS.replace('.', '/')}/TableMapEventData;"
    ct_class.getMethod("deserialize", map_of).setBody(_MAP)
    _load(ct_class, neighbour)
    ct_class = pool.get(f"{folder}.AbstractRowsEventDataDeserializer")
    for source in (_NAME, _SKIPS):
        ct_class.addMethod(jpype.JClass("javassist.CtMethod").make(source, ct_class))
    _load(ct_class, neighbour)
    for name, method, body in (
        ("EventHeaderV4Deserializer", "getEventType", _NUMBER),
        ("EventDeserializer", "deserializeEventData", _UNREAD),
    ):
        ct_class = pool.get(f"{folder}.{name}")
        ct_class.getDeclaredMethod(method).insertBefore(body)
        _load(ct_class, neighbour)
    error = pool.get("java.lang.Exception")
    for kind in ("Write", "Delete", "Update"):
        ct_class = pool.get(f"{folder}.{kind}RowsEventDataDeserializer")
        method, is_update = ct_class.getDeclaredMethod("deserializeRows"), kind == "Update"
        method.insertBefore(_SKIP_BOTH if is_update else _SKIP_ONE)
        method.addCatch(_FAILED.replace("{0}", "$1.getTableId()" if is_update else "$1"), error)
        _load(ct_class, neighbour)


def _patch_statements(pool: Any) -> None:
    """Report statements and values that aren't understood, instead of ending."""
    ct_class = pool.get("io.debezium.antlr.AntlrDdlParser")
    ct_class.getDeclaredMethod("parse").addCatch(_PARSING, pool.get("java.lang.Throwable"))
    _load(ct_class, "io.debezium.antlr.ParsingErrorListener")
    ct_class = pool.get("io.debezium.pipeline.EventDispatcher")
    ct_class.getDeclaredMethod("dispatchDataChangeEvent").addCatch(_DISPATCHED, pool.get("java.lang.Exception"))
    _load(ct_class, "io.debezium.pipeline.Sizeable")
    ct_class = pool.get(f"{_BINLOG}.BinlogStreamingChangeEventSource")
    for method in ct_class.getDeclaredMethods("informAboutUnknownTableIfRequired"):
        method.insertBefore(_UNKNOWN)
    ct_class.getDeclaredMethod("validateChangeEventWithTable").addCatch(_INVALID, pool.get("java.lang.Exception"))
    _load(ct_class, f"{_BINLOG}.BinlogPartition")


def _install_converter(pool: Any) -> None:
    import jpype

    ct_class = pool.makeClass(_CONVERTER)
    for interface in (_SPI, f"{_SPI}$Converter"):
        ct_class.addInterface(pool.get(interface))
    functions = (_DIGITS, _BIG, _FRACTION, _DAY, _CLOCK, _MOMENT, _WORD, _KIND)
    for method in (*functions, _CONFIGURE, _CONVERT, _REGISTER):
        ct_class.addMethod(jpype.JClass("javassist.CtMethod").make(method, ct_class))
    _load(ct_class, f"{_BINLOG}.event.StopEventData")


def _load(ct_class: Any, neighbour: str) -> None:
    """Load a class with the rights of one of its package."""
    import jpype

    ct_class.toClass(jpype.JClass(neighbour).class_)
