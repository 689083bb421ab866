"""The engine's part that passes values of a Postgres as the database's own text; runs in the engine's process.

The engine makes Java objects of values, of first rows and of changes by two paths, which differ for some: dates before
1582, arrays of arrays, `timetz`. Postgres itself sends text by both. So three classes of the engine are patched before
it starts, by Javassist, which is among its jars: the two that read a value, and a converter that passes it on. The
column's schema has the type, by its number in Postgres.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPE, NAME, ARRAY, SIZE, SCALE = (f"sterna.{parameter}" for parameter in ("type", "name", "array", "size", "scale"))
"""Parameters of a column's schema: the type's number (of a domain's base type), its name, whether it is an array, and
its limits."""
SOURCE_COLUMN = "__debezium.source.column."
"""The beginning of the parameters with a column's type, length and scale in the database, whichever it is."""
_CONVERTER = "io.debezium.connector.postgresql.SternaText"
_PACKAGE = "io.debezium.connector.postgresql"
_SPI = "io.debezium.spi.converter.CustomConverter"
_IS_UNCHANGED = f"{_PACKAGE}.UnchangedToastedReplicationMessageColumn.isUnchangedToastedValue"
_SCHEMA = "org.apache.kafka.connect.data.SchemaBuilder"

_RESOLVE = "{ return $4.isNull() ? null : $4.asString(); }"
_READ = "{ return $1.getString($2); }"
_FIELDS = "private String absent;"
_CONFIGURE = 'public void configure(java.util.Properties value) { absent = value.getProperty("absent"); }'
# Each is optional: a column that a deleted row lacks is null then, not zero.
_REGISTER = f"""
public void converterFor(io.debezium.spi.converter.ConvertedField value, {_SPI}$ConverterRegistration to) {{
  io.debezium.spi.converter.RelationalColumn column = (io.debezium.spi.converter.RelationalColumn) value;
  {_SCHEMA} built = {_SCHEMA}.string().optional();
  built.parameter("{TYPE}", String.valueOf(column.nativeType()));
  built.parameter("{NAME}", String.valueOf(column.typeName()));
  built.parameter("{ARRAY}", String.valueOf(column.jdbcType() == java.sql.Types.ARRAY));
  built.parameter("{SIZE}", String.valueOf(column.length().orElse(0)));
  built.parameter("{SCALE}", String.valueOf(column.scale().orElse(0)));
  to.register(built, this);
}}"""
_CONVERT = f"""
public Object convert(Object value) {{
  if (value == null) return null;
  return {_IS_UNCHANGED}(value) ? absent : value.toString();
}}"""


def settings(placeholder: str) -> Mapping[str, str]:
    """Return the engine's settings that name the converter.

    Args:
        placeholder: the value of a column that a change doesn't contain.
    """
    return {"converters": "sterna", "sterna.type": _CONVERTER, "sterna.absent": placeholder}


def install() -> None:
    """Patch the engine's classes before any of them is used; the JVM has been started."""
    import jpype

    pool = jpype.JClass("javassist.ClassPool").getDefault()
    _replace(pool, "connection.ReplicationMessageColumnValueResolver", "resolveValue", _RESOLVE)
    _replace(pool, "connection.PostgresConnection", "getColumnValue", _READ)
    _install_converter(pool)


def _replace(pool: Any, name: str, method: str, body: str) -> None:
    import jpype

    ct_class = pool.get(f"{_PACKAGE}.{name}")
    ct_class.getDeclaredMethod(method).setBody(body)
    # A class of the same package, whose rights the new one gets.
    ct_class.toClass(jpype.JClass(f"{_PACKAGE}.connection.Lsn").class_)


def _install_converter(pool: Any) -> None:
    import jpype

    ct_class = pool.makeClass(_CONVERTER)
    for interface in (_SPI, f"{_SPI}$Converter"):
        ct_class.addInterface(pool.get(interface))
    ct_class.addField(jpype.JClass("javassist.CtField").make(_FIELDS, ct_class))
    for method in (_CONFIGURE, _CONVERT, _REGISTER):
        ct_class.addMethod(jpype.JClass("javassist.CtMethod").make(method, ct_class))
    ct_class.toClass(jpype.JClass(f"{_PACKAGE}.PostgresConnectorConfig").class_)
