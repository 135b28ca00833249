"""Shared pieces without a promise to the outside."""
