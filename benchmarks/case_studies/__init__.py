"""What the case studies hold on Busway and on Apache Kafka, in turns."""
