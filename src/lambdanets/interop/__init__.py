"""Moving in from other libraries, and out to files that other programs run."""
