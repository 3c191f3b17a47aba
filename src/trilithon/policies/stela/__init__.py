"""Holds Stela: machines added and removed on demand, used where they help most."""
