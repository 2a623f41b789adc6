"""What is claimed about speed: equality first, then interleaved timing, ratios within one run."""
