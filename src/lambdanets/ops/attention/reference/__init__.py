"""The slow oracles of the family: each layer written out pair by pair, to be read beside its equation."""
