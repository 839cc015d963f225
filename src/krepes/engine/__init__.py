"""The numerical engine: start, one pass to moments or rows, linear solves, damping, and the steps they make."""
