"""The engine's part that tells values of a Postgres as the database's own text; runs in the engine's process.

The engine makes Java objects of values, first rows and changes by two ways, and some of them are others then: dates
before 1582, arrays of arrays, `timetz`. Postgres itself sends text by both ways. So three places of the engine are
built anew before it starts, by the library Javassist which it brings along: the two that read a value, and a converter
that hands it on. Which type it was is told in the column's schema, as the number that Postgres has for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPE, NAME, ARRAY, SIZE, SCALE = (f"sterna.{parameter}" for parameter in ("type", "name", "array", "size", "scale"))
"""Parameters of a column's schema: the type's number (of a domain's base type), its name, whether it is an array, and
its limits."""
_CONVERTER = "io.debezium.connector.postgresql.SternaText"
_PACKAGE = "io.debezium.connector.postgresql"
_SPI = "io.debezium.spi.converter.CustomConverter"
_IS_UNCHANGED = f"{_PACKAGE}.UnchangedToastedReplicationMessageColumn.isUnchangedToastedValue"
_SCHEMA = "org.apache.kafka.connect.data.SchemaBuilder"

_RESOLVE = "{ return $4.isNull() ? null : $4.asString(); }"
_READ = "{ return $1.getString($2); }"
_FIELDS = "private String absent;"
_CONFIGURE = 'public void configure(java.util.Properties value) { absent = value.getProperty("absent"); }'
# Each is optional: what isn't told of a deleted row is null then, and no zero.
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
        placeholder: what stands for a value that isn't told.
    """
    return {"converters": "sterna", "sterna.type": _CONVERTER, "sterna.absent": placeholder}


def install() -> None:
    """Make the engine's classes anew, before any of them is used; the JVM has been started."""
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
