//! One statement of iceberg-rust at an Iceberg REST address:
//!
//!     engine ADDRESS NAMESPACE TABLE STATEMENT [ARGUMENT], and the properties of the store as JSON in ICEBERG_STORE
//!
//! Rows are printed as JSON, a list of values on a line.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::writer::LineDelimited;
use arrow_json::{ReaderBuilder, StructMode, WriterBuilder};
use futures::TryStreamExt;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::io::FileIOBuilder;
use iceberg::spec::{DataFileFormat, NestedField, PrimitiveType, Schema, Type};
use iceberg::table::{StaticTable, Table};
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{DefaultFileNameGenerator, DefaultLocationGenerator};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::{IcebergWriter, IcebergWriterBuilder};
use iceberg::{Catalog, CatalogBuilder, TableCreation, TableIdent};
use iceberg_catalog_rest::{REST_CATALOG_PROP_URI, RestCatalogBuilder};
use iceberg_storage_opendal::OpenDalStorageFactory;
use parquet::file::properties::WriterProperties;
use uuid::Uuid;

type Done<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Done<()> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    arguments.push(String::new());
    let [address, namespace, table, statement, argument, ..] = &arguments[..] else {
        return Err("engine ADDRESS NAMESPACE TABLE STATEMENT [ARGUMENT]".into());
    };
    let name = TableIdent::from_strs([namespace, table])?;
    let mut properties: HashMap<String, String> = serde_json::from_str(&env::var("ICEBERG_STORE")?)?;
    let storage = Arc::new(OpenDalStorageFactory::S3 { customized_credential_load: None });
    if statement == "read-file" {
        let files = FileIOBuilder::new(storage).with_props(properties).build();
        let table = StaticTable::from_metadata_file(argument, name, files).await?;
        return print_rows(&table.into_table()).await;
    }
    properties.insert(REST_CATALOG_PROP_URI.to_string(), address.clone());
    let lake = RestCatalogBuilder::default().with_storage_factory(storage).load("eu", properties).await?;
    match statement.as_str() {
        "create" => {
            let creation = TableCreation::builder().name(name.name().to_string()).schema(columns()?).build();
            lake.create_table(name.namespace(), creation).await?;
        }
        "rename" => lake.rename_table(&name, &TableIdent::from_strs([namespace, argument])?).await?,
        "drop" => lake.drop_table(&name).await?,
        _ => in_table(&lake, &lake.load_table(&name).await?, statement, argument).await?,
    }
    Ok(())
}

/// Carries out statements that read or change a table.
async fn in_table(lake: &dyn Catalog, table: &Table, statement: &str, argument: &str) -> Done<()> {
    let transaction = Transaction::new(table);
    let changed = match statement {
        "read" => return print_rows(table).await,
        "append" => {
            let files = write_rows(table, argument).await?;
            transaction.fast_append().add_data_files(files).apply(transaction)?
        }
        "set" => {
            let (name, text) = argument.split_once('=').ok_or("NAME=TEXT")?;
            transaction.update_table_properties().set(name.into(), text.into()).apply(transaction)?
        }
        "column" => {
            let kind = Type::Primitive(PrimitiveType::Int);
            transaction.update_schema().add_column(AddColumn::optional(argument, kind)).apply(transaction)?
        }
        "expire" => transaction.expire_snapshots().expire_older_than_ms(i64::MAX).apply(transaction)?,
        _ => return Err(format!("there is no statement {statement:?}").into()),
    };
    changed.commit(lake).await?;
    Ok(())
}

fn columns() -> iceberg::Result<Schema> {
    let optional = |id, name, kind| Arc::new(NestedField::optional(id, name, Type::Primitive(kind)));
    let fields = vec![optional(1, "id", PrimitiveType::Long), optional(2, "name", PrimitiveType::String)];
    Schema::builder().with_fields(fields).build()
}

async fn print_rows(table: &Table) -> Done<()> {
    let batches: Vec<RecordBatch> = table.scan().build()?.to_arrow().await?.try_collect().await?;
    let options = WriterBuilder::new().with_explicit_nulls(true).with_struct_mode(StructMode::ListOnly);
    let mut writer = options.build::<_, LineDelimited>(io::stdout());
    for batch in &batches {
        writer.write(batch)?;
    }
    Ok(writer.finish()?)
}

/// Writes rows, a JSON list of objects, and returns the data files.
async fn write_rows(table: &Table, rows: &str) -> Done<Vec<iceberg::spec::DataFile>> {
    let metadata = table.metadata();
    let schema = metadata.current_schema().clone();
    let rows: Vec<serde_json::Value> = serde_json::from_str(rows)?;
    let mut decoder = ReaderBuilder::new(Arc::new(schema_to_arrow_schema(&schema)?)).build_decoder()?;
    decoder.serialize(&rows)?;
    let batch = decoder.flush()?.ok_or("there are no rows")?;
    let files = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), schema),
        table.file_io().clone(),
        DefaultLocationGenerator::new(metadata)?,
        // It counts files from zero in each run.
        DefaultFileNameGenerator::new(Uuid::now_v7().to_string(), None, DataFileFormat::Parquet),
    );
    let mut writer = DataFileWriterBuilder::new(files).build(None).await?;
    writer.write(batch).await?;
    Ok(writer.close().await?)
}
