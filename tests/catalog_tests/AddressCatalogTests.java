// Compiled by the Janino that Spark has: without generics and annotations, which it knows little of.
package tests.catalog;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.CatalogTests;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.rest.RESTCatalog;

public class AddressCatalogTests extends CatalogTests {
  private static final String PREFIX = "catalog-tests.";
  private static final String[] NAMESPACES = {"ns", "newdb", "ns1", "ns2", "other_ns", "parent"};

  private static RESTCatalog shared = null;

  public AddressCatalogTests() {
    if (shared == null) {
      shared = connect(new HashMap());
    }
    for (int at = 0; at < NAMESPACES.length; at += 1) {
      clear(Namespace.of(new String[] {NAMESPACES[at]}));
    }
  }

  private static RESTCatalog connect(Map additional) {
    Map properties = new HashMap();
    Iterator names = System.getProperties().keySet().iterator();
    while (names.hasNext()) {
      String name = (String) names.next();
      if (name.startsWith(PREFIX)) {
        properties.put(name.substring(PREFIX.length()), System.getProperty(name));
      }
    }
    properties.putAll(additional);
    RESTCatalog catalog = new RESTCatalog();
    catalog.initialize("address", properties);
    return catalog;
  }

  private static void clear(Namespace namespace) {
    if (!shared.namespaceExists(namespace)) {
      return;
    }
    Iterator children = shared.listNamespaces(namespace).iterator();
    while (children.hasNext()) {
      clear((Namespace) children.next());
    }
    Iterator tables = shared.listTables(namespace).iterator();
    while (tables.hasNext()) {
      shared.dropTable((TableIdentifier) tables.next(), false);
    }
    shared.dropNamespace(namespace);
  }

  protected Catalog catalog() {
    return shared;
  }

  protected Catalog initCatalog(String name, Map additional) {
    return connect(additional);
  }

  protected boolean requiresNamespaceCreate() {
    return true;
  }

  protected boolean supportsNestedNamespaces() {
    return true;
  }

  protected boolean supportsServerSideRetry() {
    return !Boolean.getBoolean("catalog-tests-lacks-retries");
  }

  protected boolean supportsNamesWithSlashes() {
    return !Boolean.getBoolean("catalog-tests-lacks-slashes");
  }

  protected boolean supportsNamesWithDot() {
    return !Boolean.getBoolean("catalog-tests-lacks-dots");
  }

  protected String baseTableLocation(TableIdentifier identifier) {
    String base = System.getProperty("catalog-tests-location");
    if (base == null) {
      return super.baseTableLocation(identifier);
    }
    return base + "/" + identifier.namespace() + "/" + identifier.name();
  }
}
