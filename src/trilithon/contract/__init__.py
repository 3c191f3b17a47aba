"""What every engine promises, and how its reports become snapshots.
Whoever controls knows only this.
"""
