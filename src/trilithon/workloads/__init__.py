"""The papers' jobs and load shapes."""
