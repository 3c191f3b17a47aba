"""The contract of every engine, and how its reports become snapshots; all that control knows."""
