"""Where events are sent on: webhooks. One sender an outlet, used by one thread."""
