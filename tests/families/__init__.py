"""The cases that sweeps over the attention family use: every layer in every kind of configuration."""
