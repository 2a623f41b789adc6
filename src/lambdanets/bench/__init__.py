"""Benchmarks of speed and memory: check equality first, then time interleaved and compare within one run.

Each benchmark is a file with `Settings` and `jobs(settings)`; `lambdanets bench` runs the jobs and shows their rows.
"""
