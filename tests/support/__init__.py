"""What several suites need: Apache Kafka, Java, message makers."""
