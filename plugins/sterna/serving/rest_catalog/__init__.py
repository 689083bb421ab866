"""One Iceberg REST address a region: reads are served from the region's replica, writes are committed to `main`."""
