"""What puts rows on `main` or derives from its tables: ingestion, change capture, transforms, features."""
