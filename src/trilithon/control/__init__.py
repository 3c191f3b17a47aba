"""The controller: observe, decide, guard, record, act, explain. It knows only the contract."""
