"""The experiments of the latency guarantees in Nephele: set-ups, measures, random jobs, plots."""
