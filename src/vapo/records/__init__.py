"""What a controller may see: rollout records, their sources, and nothing that gives the answer away."""

from vapo.records.model import Labels, Records, Secondary, Source, normalise_content
from vapo.records.screens import find_leaks, find_redundant

__all__ = ["Labels", "Records", "Secondary", "Source", "find_leaks", "find_redundant", "normalise_content"]
