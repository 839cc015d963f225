"""A live page on a run, for this machine alone: pick, compare, name a concept, take rows away, see what moves."""
