// What differs between two snapshots of an Iceberg table, planned from the manifests that differ, and staged for
// Iceberg's own readers. Compiled by Spark's Janino, so without generics and lambdas.
package sterna;

import java.lang.ref.Cleaner;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.types.Comparators;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionSet;

public final class StagedChanges {
  private static final List NAMES = java.util.Arrays.asList(new Object[] {"file_path", "partition"});
  private static final Cleaner CLEANER = Cleaner.create();
  private static final int MANY = 1000; // partitions: with more of them, manifests aren't told apart by their bounds

  private final Table source;
  private BaseTable table; // with the schema of the end
  private Snapshot start; // null: before the first one
  private Snapshot end;
  private final List before = new ArrayList(); // tasks
  private final List after = new ArrayList();

  public StagedChanges(Table source) {
    this.source = source;
  }

  /** Finds the end and the way to it. Returns "" or what is wrong: gap or rewound, and the snapshot's id. */
  public String open(String from, String to) {
    end = source.snapshot(Long.parseLong(to));
    if (end == null) return "gap " + to;
    start = from.isEmpty() ? null : source.snapshot(Long.parseLong(from));
    if (start == null && !from.isEmpty()) return "gap " + from;
    table = at(end);
    if (start == null) return "";
    for (Snapshot each = end; each.snapshotId() != start.snapshotId(); ) {
      if (each.parentId() == null) return "rewound " + from;
      Snapshot parent = source.snapshot(each.parentId().longValue());
      if (parent == null) return "gap " + each.parentId();
      each = parent;
    }
    return "";
  }

  /** Whether rows have ids, at both ends. */
  public boolean lineage() {
    return start != null && start.firstRowId() != null && end.firstRowId() != null;
  }

  public String schema() {
    return org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema()).json();
  }

  public int filesBefore() {
    return before.size();
  }

  public int filesAfter() {
    return after.size();
  }

  public boolean stageBefore(String id) {
    return stage(id, before);
  }

  public boolean stageAfter(String id) {
    return stage(id, after);
  }

  /** Lets go of what is staged under an id once nobody holds what reads it. */
  public void endWith(Object reader, final String id) {
    final Table staged = table;
    CLEANER.register(
        reader,
        new Runnable() {
          public void run() {
            ScanTaskSetManager.get().removeTasks(staged, id);
            SparkTableCache.get().remove(id);
          }
        });
  }

  private boolean stage(String id, List tasks) {
    if (tasks.isEmpty()) return false;
    SparkTableCache.get().add(id, table);
    ScanTaskSetManager.get().stageTasks(table, id, tasks);
    return true;
  }

  /**
   * The table as it is, with the schema that a snapshot was written with. The current spec and order may need a column
   * that came later, and Iceberg refuses such a table: nothing is written here, so it has neither.
   */
  private BaseTable at(Snapshot snapshot) {
    TableOperations operations = ((HasTableOperations) source).operations();
    TableMetadata metadata = operations.current();
    Integer schema = snapshot.schemaId();
    if (schema != null && schema.intValue() != metadata.currentSchemaId()) {
      metadata =
          TableMetadata.buildFrom(metadata)
              .addPartitionSpec(PartitionSpec.unpartitioned())
              .setDefaultPartitionSpec(unpartitioned(metadata))
              .addSortOrder(SortOrder.unsorted())
              .setDefaultSortOrder(SortOrder.unsorted().orderId())
              .setCurrentSchema(schema.intValue())
              .discardChanges()
              .withMetadataLocation(metadata.metadataFileLocation())
              .build();
    }
    return new BaseTable(new StaticTableOperations(metadata, operations.io()), source.name());
  }

  /** The id of the spec without fields; -1, by which Iceberg means the one that was just added, where there was none. */
  private static int unpartitioned(TableMetadata metadata) {
    for (Iterator i = metadata.specs().iterator(); i.hasNext(); ) {
      PartitionSpec spec = (PartitionSpec) i.next();
      if (spec.fields().isEmpty()) return spec.specId();
    }
    return -1;
  }

  /** Plans what must be read of both: files that are in one alone, or whose rows are deleted by other delete files. */
  public void plan() throws Exception {
    Manifests data = new Manifests(dataOf(start), end.dataManifests(table.io()));
    Manifests deletes = new Manifests(deletesOf(start), end.deleteManifests(table.io()));
    Touched touched = new Touched(table.specs());
    move(touched, data);
    touch(touched, deletes);
    Map old = start == null ? new HashMap() : tasks(start, data.allBefore, deletes.allBefore, touched);
    Map now = tasks(end, data.allAfter, deletes.allAfter, touched);
    subtract(old, now, before);
    subtract(now, old, after);
    if (start != null && onlyRewritten() && sameCount()) {
      before.clear();
      after.clear();
    }
  }

  /** Whether each snapshot on the way is labelled as one that changes no row. */
  private boolean onlyRewritten() {
    for (Snapshot each = end; each.snapshotId() != start.snapshotId(); each = source.snapshot(each.parentId().longValue()))
      if (!DataOperations.REPLACE.equals(each.operation())) return false;
    return true;
  }

  /** Whether files that differ have as many rows before as after: a label alone may hide rows that came or went. */
  private boolean sameCount() {
    long old = live(before);
    return old >= 0 && old == live(after);
  }

  /** How many rows tasks have less those that are deleted; -1 where only their values tell which are. */
  private static long live(List tasks) {
    long rows = 0;
    for (Iterator i = tasks.iterator(); i.hasNext(); ) {
      FileScanTask task = (FileScanTask) i.next();
      rows += task.file().recordCount();
      for (Iterator j = task.deletes().iterator(); j.hasNext(); ) {
        DeleteFile delete = (DeleteFile) j.next();
        if (!ContentFileUtil.isFileScoped(delete)) return -1;
        rows -= delete.recordCount();
      }
    }
    return rows;
  }

  private List dataOf(Snapshot snapshot) {
    return snapshot == null ? new ArrayList() : snapshot.dataManifests(table.io());
  }

  private List deletesOf(Snapshot snapshot) {
    return snapshot == null ? new ArrayList() : snapshot.deleteManifests(table.io());
  }

  private void move(Touched touched, Manifests data) throws Exception {
    Map count = new HashMap(); // path: how often it is there after, less how often before
    for (int side = 0; side < 2; side++) {
      for (Iterator i = (side == 0 ? data.before : data.after).iterator(); i.hasNext(); ) {
        ManifestFile manifest = (ManifestFile) i.next();
        // Without statistics: manifests that were merged name again all that they named before.
        CloseableIterable files = ManifestFiles.read(manifest, table.io(), table.specs()).select(NAMES);
        for (Iterator j = files.iterator(); j.hasNext(); ) {
          DataFile file = (DataFile) j.next();
          String path = file.location();
          Moved known = (Moved) count.get(path);
          if (known == null) count.put(path, known = new Moved(file.specId(), file.partition()));
          known.manifests.add(manifest.path());
          known.count += side == 0 ? -1 : 1;
        }
        files.close();
      }
    }
    for (Iterator i = count.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry each = (Map.Entry) i.next();
      Moved file = (Moved) each.getValue();
      if (file.count == 0) continue; // merely moved, or listed as often as before: manifests of both sides are known
      touched.paths.add(each.getKey());
      touched.manifests.addAll(file.manifests);
      touched.note(touched.all, file.spec, file.partition);
    }
  }

  private void touch(Touched touched, Manifests deletes) throws Exception {
    Map before = deleteFiles(deletes.before);
    Map after = deleteFiles(deletes.after);
    for (int side = 0; side < 2; side++) {
      Map mine = side == 0 ? before : after;
      Map other = side == 0 ? after : before;
      for (Iterator i = mine.entrySet().iterator(); i.hasNext(); ) {
        Map.Entry each = (Map.Entry) i.next();
        if (!other.containsKey(each.getKey())) touched.add((DeleteFile) each.getValue());
      }
    }
  }

  private Map deleteFiles(List manifests) throws Exception {
    Map found = new HashMap();
    for (Iterator i = manifests.iterator(); i.hasNext(); ) {
      CloseableIterable files = ManifestFiles.readDeleteManifest((ManifestFile) i.next(), table.io(), table.specs());
      for (Iterator j = files.iterator(); j.hasNext(); ) {
        DeleteFile file = (DeleteFile) j.next();
        found.put(named(file) + "@" + file.dataSequenceNumber(), file);
      }
      files.close();
    }
    return found;
  }

  /** Lets Iceberg plan a snapshot that has some of its manifests; returns lists of tasks by file and delete files. */
  private Map tasks(Snapshot snapshot, List all, List deletes, Touched touched) throws Exception {
    List data = new ArrayList();
    for (Iterator i = all.iterator(); i.hasNext(); ) {
      ManifestFile each = (ManifestFile) i.next();
      if (touched.manifests.contains(each.path()) || touched.mayHold(each, touched.byDeletes)) data.add(each);
    }
    List kept = new ArrayList();
    for (Iterator i = deletes.iterator(); i.hasNext(); ) {
      ManifestFile each = (ManifestFile) i.next();
      PartitionSpec spec = (PartitionSpec) table.specs().get(each.partitionSpecId());
      // Equality deletes without a partition are everybody's.
      if (spec.isUnpartitioned() || touched.mayHold(each, touched.all)) kept.add(each);
    }
    Map found = new HashMap();
    TableScan scan = (TableScan) new Narrow(table, narrowed(snapshot, data, kept)).newScan();
    CloseableIterable planned = ((TableScan) scan.useSnapshot(snapshot.snapshotId())).planFiles();
    for (Iterator i = planned.iterator(); i.hasNext(); ) {
      FileScanTask task = (FileScanTask) i.next();
      if (!touched.holds((DataFile) task.file())) continue;
      Set applied = new TreeSet();
      for (Iterator j = task.deletes().iterator(); j.hasNext(); ) applied.add(named((DeleteFile) j.next()));
      String key = task.file().location() + "\n" + applied;
      List same = (List) found.get(key);
      if (same == null) found.put(key, same = new ArrayList());
      same.add(task);
    }
    planned.close();
    return found;
  }

  private static String named(DeleteFile file) {
    return file.location() + "@" + file.contentOffset();
  }

  /** Adds what is in the first and not in the second; a file may be listed more than once. */
  private static void subtract(Map first, Map second, List result) {
    for (Iterator i = first.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry each = (Map.Entry) i.next();
      List mine = (List) each.getValue();
      List others = (List) second.get(each.getKey());
      for (int n = others == null ? 0 : others.size(); n < mine.size(); n++) result.add(mine.get(n));
    }
  }

  private static Snapshot narrowed(final Snapshot whole, final List data, final List deletes) {
    return (Snapshot)
        Proxy.newProxyInstance(
            Snapshot.class.getClassLoader(),
            new Class[] {Snapshot.class},
            new InvocationHandler() {
              public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
                if (method.getName().equals("dataManifests")) return data;
                if (method.getName().equals("deleteManifests")) return deletes;
                try {
                  return method.invoke(whole, arguments);
                } catch (InvocationTargetException error) {
                  throw error.getCause();
                }
              }
            });
  }

  private static final class Moved {
    final int spec;
    final StructLike partition;
    final List manifests = new ArrayList(2);
    int count;

    Moved(int spec, StructLike partition) {
      this.spec = spec;
      this.partition = partition;
    }
  }

  /** The table with one of its snapshots in another form. */
  private static final class Narrow extends BaseTable {
    private final Snapshot form;

    Narrow(BaseTable table, Snapshot form) {
      super(table.operations(), table.name());
      this.form = form;
    }

    public Snapshot snapshot(long id) {
      return id == form.snapshotId() ? form : super.snapshot(id);
    }
  }

  /** Manifests of two snapshots. */
  private static final class Manifests {
    final List before = new ArrayList();
    final List after = new ArrayList();
    final List allBefore;
    final List allAfter;

    Manifests(List old, List now) {
      allBefore = old;
      allAfter = now;
      Set known = new HashSet();
      Set kept = new HashSet();
      for (Iterator i = old.iterator(); i.hasNext(); ) known.add(((ManifestFile) i.next()).path());
      for (Iterator i = now.iterator(); i.hasNext(); ) {
        ManifestFile each = (ManifestFile) i.next();
        if (known.contains(each.path())) {
          kept.add(each.path());
        } else {
          after.add(each);
        }
      }
      for (Iterator i = old.iterator(); i.hasNext(); ) {
        ManifestFile each = (ManifestFile) i.next();
        if (!kept.contains(each.path())) before.add(each);
      }
    }
  }

  /** Which data files may differ. */
  private static final class Touched {
    final Map specs;
    final Set paths = new HashSet();
    final Set manifests = new HashSet(); // that name files which are new or gone
    final Map all = new HashMap(); // a spec's id: partitions with files that may differ
    final Map byDeletes = new HashMap(); // those of them that deletes have touched
    final PartitionSet whole; // partitions all of whose files may differ
    boolean everything;

    Touched(Map specs) {
      this.specs = specs;
      this.whole = PartitionSet.create(specs);
    }

    void note(Map where, int spec, StructLike partition) {
      PartitionSet known = (PartitionSet) where.get(Integer.valueOf(spec));
      if (known == null) where.put(Integer.valueOf(spec), known = PartitionSet.create(specs));
      known.add(spec, partition);
    }

    void add(DeleteFile file) {
      PartitionSpec spec = (PartitionSpec) specs.get(Integer.valueOf(file.specId()));
      note(all, file.specId(), file.partition());
      note(byDeletes, file.specId(), file.partition());
      String path = ContentFileUtil.isFileScoped(file) ? String.valueOf(ContentFileUtil.referencedDataFile(file)) : null;
      if (path != null) paths.add(path);
      else if (file.content() == FileContent.EQUALITY_DELETES && spec.isUnpartitioned()) everything = true;
      else whole.add(file.specId(), file.partition());
    }

    boolean holds(ContentFile file) {
      return everything || paths.contains(file.location()) || whole.contains(file.specId(), file.partition());
    }

    boolean mayHold(ManifestFile manifest, Map where) {
      if (everything) return true;
      Set wanted = (Set) where.get(Integer.valueOf(manifest.partitionSpecId()));
      if (wanted == null) return false;
      List bounds = manifest.partitions();
      if (bounds == null || wanted.size() > MANY) return true;
      PartitionSpec spec = (PartitionSpec) specs.get(Integer.valueOf(manifest.partitionSpecId()));
      for (Iterator i = wanted.iterator(); i.hasNext(); ) {
        StructLike partition = (StructLike) ((org.apache.iceberg.util.Pair) i.next()).second();
        if (within(bounds, spec, partition)) return true;
      }
      return false;
    }

    private static boolean within(List bounds, PartitionSpec spec, StructLike partition) {
      List fields = spec.partitionType().fields();
      for (int n = 0; n < fields.size() && n < bounds.size(); n++) {
        Type type = ((Types.NestedField) fields.get(n)).type();
        ManifestFile.PartitionFieldSummary bound = (ManifestFile.PartitionFieldSummary) bounds.get(n);
        if (outside(type, bound, partition.get(n, Object.class))) return false;
      }
      return true;
    }

    /** Whether a value is surely not in a manifest. */
    private static boolean outside(Type type, ManifestFile.PartitionFieldSummary bound, Object value) {
      if (value == null) return !bound.containsNull();
      if (value instanceof Float && ((Float) value).isNaN()) return false;
      if (value instanceof Double && ((Double) value).isNaN()) return false;
      if (bound.lowerBound() == null || bound.upperBound() == null) return false;
      try {
        java.util.Comparator order = Comparators.forType((Type.PrimitiveType) type);
        return order.compare(value, Conversions.fromByteBuffer(type, bound.lowerBound())) < 0
            || order.compare(value, Conversions.fromByteBuffer(type, bound.upperBound())) > 0;
      } catch (RuntimeException error) {
        return false; // a type that was promoted since
      }
    }
  }
}
