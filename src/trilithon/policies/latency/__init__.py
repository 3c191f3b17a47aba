"""The policy `latency`: the fewest instances that keep constraints on the latency of paths."""
