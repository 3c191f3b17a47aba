"""The controller: observe, decide, guard, record, act, explain. It knows engines by their contract only."""
