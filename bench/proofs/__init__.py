"""What the proofs share: a scene to run in, a chain that tells its tasks, a load, and figures."""
