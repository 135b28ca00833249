"""Verifiers: what judges a completion, isolated so that it can hurt nothing but its own verdict."""

from vapo.verifiers.base import Cost, Failure, Item, Outcome, Verifier

__all__ = ["Cost", "Failure", "Item", "Outcome", "Verifier"]
