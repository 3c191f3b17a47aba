"""Intent-driven stream processing on Apache Spark."""

__version__ = "0.2.0"
