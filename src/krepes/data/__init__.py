"""Data to try things on, where the truth is known because it was planted."""
