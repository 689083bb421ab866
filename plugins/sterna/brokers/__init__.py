"""Where events are sent on: webhooks, Kafka, AMQP 1.0. One sender an outlet, used by one thread."""
