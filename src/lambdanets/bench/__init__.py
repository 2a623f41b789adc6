"""What is claimed about speed and memory: equality first, then interleaved timing, ratios within one run.

Each benchmark is a file with `Settings` and `jobs(settings)`; `lambdanets bench` runs the jobs and shows their rows.
"""
