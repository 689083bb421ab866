import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Writes flink_upsert with Flink's SQL in this JVM, over make_catalog.py; README.md tells how it was run. */
public class MakeFlink {
  private static final String[] NAMES = {"one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"};
  private static final String COLUMNS =
      "(id BIGINT NOT NULL, name STRING, price DECIMAL(9, 2), `day` DATE, seen TIMESTAMP(6), part INT NOT NULL, "
          + "PRIMARY KEY (id, part) NOT ENFORCED) PARTITIONED BY (part) ";

  private static Row row(RowKind kind, int id, String name) {
    return Row.ofKind(kind, (long) id, name, new BigDecimal(id + ".25"), LocalDate.of(2026, 1, id),
        LocalDateTime.of(2026, 1, id, 0, 0, id), id % 3);
  }

  private static List<Row> rows(int first, int last) {
    List<Row> rows = new ArrayList<>();
    for (int id = first; id <= last; id++) {
      rows.add(row(RowKind.INSERT, id, NAMES[id - 1]));
    }
    return rows;
  }

  private static void write(List<Row> rows, boolean isFirst) throws Exception {
    StreamExecutionEnvironment streams = StreamExecutionEnvironment.getExecutionEnvironment();
    streams.setParallelism(1);
    StreamTableEnvironment tables = StreamTableEnvironment.create(streams);
    tables.executeSql("CREATE CATALOG lake WITH ('type'='iceberg', 'catalog-type'='rest', 'uri'='" + System.getenv("CATALOG")
        + "', 'io-impl'='org.apache.iceberg.aws.s3.S3FileIO', 's3.endpoint'='" + System.getenv("S3_ENDPOINT")
        + "', 's3.path-style-access'='true', 'client.region'='us-east-1', 'cache-enabled'='false')");
    if (isFirst) {
      tables.executeSql("CREATE DATABASE lake.ns");
      tables.executeSql("CREATE TABLE lake.ns.flink_upsert " + COLUMNS
          + "WITH ('format-version'='2', 'write.upsert.enabled'='true')");
    }
    var types = Types.ROW_NAMED(new String[] {"id", "name", "price", "day", "seen", "part"}, Types.LONG, Types.STRING,
        Types.BIG_DEC, Types.LOCAL_DATE, Types.LOCAL_DATE_TIME, Types.INT);
    Schema schema = Schema.newBuilder()
        .column("id", DataTypes.BIGINT().notNull()).column("name", DataTypes.STRING())
        .column("price", DataTypes.DECIMAL(9, 2)).column("day", DataTypes.DATE())
        .column("seen", DataTypes.TIMESTAMP(6)).column("part", DataTypes.INT().notNull())
        .primaryKey("id", "part").build();
    tables.createTemporaryView("changes", tables.fromChangelogStream(streams.fromCollection(rows, types), schema));
    tables.executeSql("INSERT INTO lake.ns.flink_upsert SELECT * FROM changes").await();
  }

  public static void main(String[] args) throws Exception {
    write(rows(1, 6), true);
    List<Row> second = rows(7, 9);
    second.add(row(RowKind.DELETE, 2, "two"));
    second.add(row(RowKind.DELETE, 8, "eight")); // written and deleted in one commit: a position delete
    write(second, false);
    write(List.of(row(RowKind.UPDATE_BEFORE, 3, "three"), row(RowKind.UPDATE_AFTER, 3, "anew")), false);
    write(List.of(Row.ofKind(RowKind.INSERT, 10L, null, null, null, null, 1)), false);
    System.out.println("written");
    System.exit(0);
  }
}
