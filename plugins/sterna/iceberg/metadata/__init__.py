"""metadata.json of tables and views: what it says, which history stays, and its localized copy."""
