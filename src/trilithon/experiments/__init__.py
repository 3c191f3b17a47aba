"""The papers' experiments: what was run, and which figures stand beside ours."""
