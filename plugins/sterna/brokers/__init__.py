"""Where events are sent on: webhooks, Kafka, AMQP 1.0. One sender a sink, used by one thread."""
