"""Kernels: the exact empirical tangent kernel, its sketch, the classic kernels, and kernels that wrap kernels."""
