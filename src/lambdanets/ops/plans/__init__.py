"""Exact ways to compute the position term, one file each."""
