"""Jobs on Apache Spark."""
