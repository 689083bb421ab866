// One statement of iceberg-go at an Iceberg REST address:
//
//	engine ADDRESS NAMESPACE TABLE STATEMENT [ARGUMENT], and the properties of the store as JSON in ICEBERG_STORE
//
// Rows are printed as JSON, a list of values on a line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/io"
	_ "github.com/apache/iceberg-go/io/gocloud/s3"
	"github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/view"
)

var columns = iceberg.NewSchema(0,
	iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
	iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String},
)

func main() {
	if err := run(context.Background(), append(os.Args[1:], "")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	address, statement, argument := arguments[0], arguments[3], arguments[4]
	identifier := table.Identifier{arguments[1], arguments[2]}
	store := iceberg.Properties{}
	if err := json.Unmarshal([]byte(os.Getenv("ICEBERG_STORE")), &store); err != nil {
		return err
	}
	if statement == "read-file" {
		loaded, err := table.NewFromLocation(ctx, identifier, argument, io.LoadFSFunc(store, argument), nil)
		if err != nil {
			return err
		}
		return printRows(ctx, loaded)
	}
	lake, err := rest.NewCatalog(ctx, "eu", address, rest.WithAdditionalProps(store))
	if err != nil {
		return err
	}
	if done, err := inCatalog(ctx, lake, identifier, statement, argument); done || err != nil {
		return err
	}
	loaded, err := lake.LoadTable(ctx, identifier)
	if err != nil {
		return err
	}
	if done, err := ofRows(ctx, loaded, statement, argument); done || err != nil {
		return err
	}
	return ofTable(ctx, loaded, statement, argument)
}

// inCatalog carries out statements of the catalog, and says whether it was one.
func inCatalog(ctx context.Context, lake *rest.Catalog, name table.Identifier, statement, argument string) (bool, error) {
	switch statement {
	case "create":
		_, err := lake.CreateTable(ctx, name, columns)
		return true, err
	case "rename":
		_, err := lake.RenameTable(ctx, name, table.Identifier{name[0], argument})
		return true, err
	case "drop":
		return true, lake.DropTable(ctx, name)
	case "create-view":
		query := view.Representation{Type: "sql", Sql: argument, Dialect: "spark"}
		version, err := view.NewVersion(1, 0, view.Representations{query}, name[:1])
		if err != nil {
			return true, err
		}
		_, err = lake.CreateView(ctx, name, version, columns)
		return true, err
	case "drop-view":
		return true, lake.DropView(ctx, name)
	}
	return false, nil
}

// ofRows carries out statements that read or write rows, and says whether it was one.
func ofRows(ctx context.Context, loaded *table.Table, statement, argument string) (bool, error) {
	switch statement {
	case "read":
		return true, printRows(ctx, loaded)
	case "append", "overwrite":
		rows, err := parseRows(loaded, argument)
		if err != nil {
			return true, err
		}
		if statement == "append" {
			_, err = loaded.Append(ctx, rows, nil)
		} else {
			_, err = loaded.Overwrite(ctx, rows, nil)
		}
		return true, err
	case "delete":
		id, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			return true, err
		}
		_, err = loaded.Delete(ctx, iceberg.EqualTo(iceberg.Reference("id"), id), nil)
		return true, err
	case "orphans":
		result, err := loaded.DeleteOrphanFiles(ctx, table.WithFilesOlderThan(0))
		fmt.Println(len(result.DeletedFiles))
		return true, err
	}
	return false, nil
}

// ofTable carries out statements that change the table itself.
func ofTable(ctx context.Context, loaded *table.Table, statement, argument string) error {
	transaction := loaded.NewTransaction()
	var err error
	switch statement {
	case "set":
		name, text, _ := strings.Cut(argument, "=")
		err = transaction.SetProperties(iceberg.Properties{name: text})
	case "column":
		change := transaction.UpdateSchema(true, false)
		err = change.AddColumn([]string{argument}, iceberg.PrimitiveTypes.Int32, "", false, nil).Commit()
	case "partition":
		change := transaction.UpdateSpec(true)
		err = change.AddField(argument, iceberg.BucketTransform{NumBuckets: 4}, argument+"_bucket").Commit()
	case "rollback":
		var id int64
		if id, err = strconv.ParseInt(argument, 10, 64); err == nil {
			err = transaction.RollbackToSnapshot(id)
		}
	case "expire":
		err = transaction.ExpireSnapshots(table.WithOlderThan(0), table.WithRetainLast(1))
	default:
		err = fmt.Errorf("there is no statement %q", statement)
	}
	if err != nil {
		return err
	}
	_, err = transaction.Commit(ctx)
	return err
}

func printRows(ctx context.Context, loaded *table.Table) error {
	_, batches, err := loaded.Scan().ToArrowRecords(ctx)
	if err != nil {
		return err
	}
	for batch, err := range batches {
		if err != nil {
			return err
		}
		for row := range int(batch.NumRows()) {
			values := make([]any, batch.NumCols())
			for column, array := range batch.Columns() {
				values[column] = array.GetOneForMarshal(row)
			}
			if err := json.NewEncoder(os.Stdout).Encode(values); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseRows(loaded *table.Table, rows string) (array.RecordReader, error) {
	schema, err := table.SchemaToArrowSchema(loaded.Schema(), nil, true, false)
	if err != nil {
		return nil, err
	}
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		return nil, err
	}
	return array.NewRecordReader(schema, []arrow.RecordBatch{batch})
}
