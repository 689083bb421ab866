"""What Spark needs to read from Kafka, as `--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1` brings it."""

from __future__ import annotations

from sterna.servers.jars import Jar

SPARK_KAFKA = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.1.1",
        491_694,
        "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.1",
        66_579,
        "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        9_215_194,
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        152_289,
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)
