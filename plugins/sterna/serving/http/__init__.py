"""The gateway: HTTP for a region's services, one app with a router for each. Needs the extra `serve`."""
