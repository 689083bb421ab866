//! Writes the table rust_append with iceberg-rust; README.md tells how it was run.
//!
//! LocalFsStorage takes s3://us-lake/x for a file below the current folder, s3:/us-lake/x.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use iceberg::arrow::{RecordBatchPartitionSplitter, schema_to_arrow_schema};
use iceberg::io::LocalFsStorageFactory;
use iceberg::memory::{MEMORY_CATALOG_WAREHOUSE, MemoryCatalogBuilder};
use iceberg::spec::{
    DataFileFormat, FormatVersion, NestedField, PrimitiveType, Schema, Transform, Type,
    UnboundPartitionSpec,
};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{
    DefaultFileNameGenerator, DefaultLocationGenerator,
};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::partitioning::PartitioningWriter;
use iceberg::writer::partitioning::fanout_writer::FanoutWriter;
use iceberg::{Catalog, CatalogBuilder, NamespaceIdent, Result, TableCreation};
use parquet::file::properties::WriterProperties;

const DAY: i32 = 20453; // 2025-12-31
const DAY_MICROSECONDS: i64 = 86_400_000_000;

fn rows(schema: &Schema, ids: &[i64]) -> Result<RecordBatch> {
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"];
    let set = |id: i64| (id < 10).then_some(id);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from_iter(
            ids.iter().map(|id| set(*id).map(|id| names[id as usize - 1])),
        )),
        Arc::new(
            Decimal128Array::from_iter(ids.iter().map(|id| set(*id).map(|id| id as i128 * 100 + 25)))
                .with_precision_and_scale(9, 2)
                .unwrap(),
        ),
        Arc::new(Date32Array::from_iter(ids.iter().map(|id| set(*id).map(|id| DAY + id as i32)))),
        Arc::new(TimestampMicrosecondArray::from_iter(ids.iter().map(|id| {
            set(*id).map(|id| (DAY as i64 + id) * DAY_MICROSECONDS + id * 1_000_000)
        }))),
        Arc::new(Int32Array::from_iter_values(ids.iter().map(|id| (*id % 3) as i32))),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema_to_arrow_schema(schema)?), columns).unwrap())
}

async fn append(catalog: &dyn Catalog, table: &Table, ids: &[i64]) -> Result<Table> {
    let metadata = table.metadata();
    let schema = metadata.current_schema();
    let files = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), schema.clone()),
        table.file_io().clone(),
        DefaultLocationGenerator::new(metadata)?,
        DefaultFileNameGenerator::new(format!("from-{}", ids[0]), None, DataFileFormat::Parquet),
    );
    let mut writer = FanoutWriter::new(DataFileWriterBuilder::new(files));
    let splitter = RecordBatchPartitionSplitter::try_new_with_computed_values(
        schema.clone(),
        metadata.default_partition_spec().clone(),
    )?;
    for (key, batch) in splitter.split(&rows(schema, ids)?)? {
        writer.write(key, batch).await?;
    }
    let action = Transaction::new(table).fast_append().add_data_files(writer.close().await?);
    action.apply(Transaction::new(table))?.commit(catalog).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let warehouse = HashMap::from([(
        MEMORY_CATALOG_WAREHOUSE.to_string(),
        "s3://us-lake/strangers".to_string(),
    )]);
    let catalog = MemoryCatalogBuilder::default()
        .with_storage_factory(Arc::new(LocalFsStorageFactory))
        .load("memory", warehouse)
        .await?;
    let namespace = NamespaceIdent::new("ns".to_string());
    catalog.create_namespace(&namespace, HashMap::new()).await?;
    let optional = |id, name: &str, kind| {
        Arc::new(NestedField::optional(id, name, Type::Primitive(kind)))
    };
    let schema = Schema::builder()
        .with_fields(vec![
            Arc::new(NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long))),
            optional(2, "name", PrimitiveType::String),
            optional(3, "price", PrimitiveType::Decimal { precision: 9, scale: 2 }),
            optional(4, "day", PrimitiveType::Date),
            optional(5, "seen", PrimitiveType::Timestamp),
            optional(6, "part", PrimitiveType::Int),
        ])
        .build()?;
    let spec = UnboundPartitionSpec::builder()
        .add_partition_field(4, "day_month", Transform::Month)?
        .add_partition_field(6, "part", Transform::Identity)?
        .build();
    let creation = TableCreation::builder()
        .name("rust_append".to_string())
        .location("s3://us-lake/strangers/rust_append".to_string())
        .schema(schema)
        .partition_spec(spec)
        .format_version(FormatVersion::V2)
        .build();
    let table = catalog.create_table(&namespace, creation).await?;
    let table = append(&catalog, &table, &[1, 2, 3, 4, 5, 6]).await?;
    let table = append(&catalog, &table, &[7, 8, 9]).await?;
    let table = append(&catalog, &table, &[10]).await?;
    println!("{}", table.metadata_location().unwrap());
    Ok(())
}
