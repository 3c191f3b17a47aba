"""What the proofs share: a testbed, a job that records its tasks, a load, and figures."""
