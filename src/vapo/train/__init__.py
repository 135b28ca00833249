"""Learners: language models trained through the gate, and every arm to compare them with."""
