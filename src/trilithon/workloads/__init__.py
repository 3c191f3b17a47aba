"""Load for jobs: shapes, traces, records, and a generator that writes to Kafka."""
