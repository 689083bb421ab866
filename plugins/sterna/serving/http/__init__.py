"""The gateway: the HTTP of a region's rooms, one app with a router a room. Needs the extra `serve`."""
