// Writes the tables go_position and go_equality with iceberg-go; README.md tells how it was run.
//
// LocalFS takes s3://us-lake/x for a file below the current folder, s3:/us-lake/x.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"
)

const root = "s3://us-lake/strangers/"

var first = []string{
	`{"id":1,"name":"one","price":"1.25","day":"2026-01-01","seen":"2026-01-01 00:00:01","part":1}`,
	`{"id":2,"name":"two","price":"2.25","day":"2026-01-02","seen":"2026-01-02 00:00:02","part":2}`,
	`{"id":3,"name":"three","price":"3.25","day":"2026-01-03","seen":"2026-01-03 00:00:03","part":0}`,
	`{"id":4,"name":"four","price":"4.25","day":"2026-01-04","seen":"2026-01-04 00:00:04","part":1}`,
	`{"id":5,"name":"five","price":"5.25","day":"2026-01-05","seen":"2026-01-05 00:00:05","part":2}`,
	`{"id":6,"name":"six","price":"6.25","day":"2026-01-06","seen":"2026-01-06 00:00:06","part":0}`,
}
var second = []string{
	`{"id":7,"name":"seven","price":"7.25","day":"2026-01-07","seen":"2026-01-07 00:00:07","part":1}`,
	`{"id":8,"name":"eight","price":"8.25","day":"2026-01-08","seen":"2026-01-08 00:00:08","part":2}`,
	`{"id":9,"name":"ünï 日本","price":"9.25","day":"2026-01-09","seen":"2026-01-09 00:00:09","part":0}`,
}
var last = []string{`{"id":10,"name":null,"price":null,"day":null,"seen":null,"part":1}`}

type catalog struct {
	tables  map[string]*table.Table
	version int
}

func (c *catalog) LoadTable(_ context.Context, id table.Identifier) (*table.Table, error) {
	return c.tables[id[0]], nil
}

func (c *catalog) put(id table.Identifier, meta table.Metadata) (string, error) {
	location := fmt.Sprintf("%s/metadata/%05d-%s.metadata.json", meta.Location(), c.version, uuid.New())
	c.version++
	file, err := io.LocalFS{}.Create(location)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := json.Marshal(meta)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	c.tables[id[0]] = table.New(id, meta, location, files, c)
	return location, err
}

func (c *catalog) CommitTable(_ context.Context, id table.Identifier, reqs []table.Requirement, updates []table.Update) (table.Metadata, string, error) {
	now := c.tables[id[0]]
	for _, req := range reqs {
		if err := req.Validate(now.Metadata()); err != nil {
			return nil, "", err
		}
	}
	meta, err := table.UpdateTableMetadata(now.Metadata(), updates, now.MetadataLocation())
	if err != nil {
		return nil, "", err
	}
	location, err := c.put(id, meta)
	return meta, location, err
}

func files(context.Context) (io.IO, error) { return io.LocalFS{}, nil }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func rows(schema *iceberg.Schema, lines []string) arrow.Table {
	arrowSchema, err := table.SchemaToArrowSchema(schema, nil, true, false)
	must(err)
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrowSchema, strings.NewReader("["+strings.Join(lines, ",")+"]"))
	must(err)
	return array.NewTableFromRecords(arrowSchema, []arrow.RecordBatch{record})
}

func create(c *catalog, name string, partitioned bool) *table.Table {
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64, Required: true},
		iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String},
		iceberg.NestedField{ID: 3, Name: "price", Type: iceberg.DecimalTypeOf(9, 2)},
		iceberg.NestedField{ID: 4, Name: "day", Type: iceberg.PrimitiveTypes.Date},
		iceberg.NestedField{ID: 5, Name: "seen", Type: iceberg.PrimitiveTypes.Timestamp},
		iceberg.NestedField{ID: 6, Name: "part", Type: iceberg.PrimitiveTypes.Int32},
	)
	spec := *iceberg.UnpartitionedSpec
	if partitioned {
		spec = iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{6}, FieldID: 1000, Name: "part", Transform: iceberg.IdentityTransform{}})
	}
	meta, err := table.NewMetadata(schema, &spec, table.UnsortedSortOrder, root+name, iceberg.Properties{
		table.PropertyFormatVersion: "2", table.WriteDeleteModeKey: table.WriteModeMergeOnRead})
	must(err)
	_, err = c.put([]string{name}, meta)
	must(err)
	return c.tables[name]
}

func appended(t *table.Table, lines []string) *table.Table {
	t, err := t.AppendTable(context.Background(), rows(t.Schema(), lines), 100, nil)
	must(err)
	return t
}

func main() {
	ctx := context.Background()
	c := &catalog{tables: map[string]*table.Table{}}
	t := appended(appended(create(c, "go_position", true), first), second)
	two := iceberg.NewOr(iceberg.EqualTo(iceberg.Reference("id"), int64(2)), iceberg.EqualTo(iceberg.Reference("id"), int64(8)))
	t, err := t.Delete(ctx, two, nil)
	must(err)
	t = appended(t, last)
	fmt.Println(t.MetadataLocation())

	c.version = 0
	t = appended(appended(create(c, "go_equality", false), first), second)
	keys, err := table.SchemaToArrowSchema(iceberg.NewSchema(0, t.Schema().Fields()[0]), nil, true, false)
	must(err)
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, keys, strings.NewReader(`[{"id":2},{"id":8}]`))
	must(err)
	tx := t.NewTransaction()
	deletes, err := tx.WriteEqualityDeletes(ctx, []int{1}, func(yield func(arrow.RecordBatch, error) bool) { yield(record, nil) })
	must(err)
	must(tx.NewRowDelta(nil).AddDeletes(deletes...).Commit(ctx))
	t, err = tx.Commit(ctx)
	must(err)
	t = appended(t, last)
	fmt.Println(t.MetadataLocation())
}
