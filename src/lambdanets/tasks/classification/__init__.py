"""Images to classes."""

from lambdanets.tasks.classification.task import Classification

__all__ = ["Classification"]
