"""Encoders written here: the paper's ResMLP, a small MLP, residual networks."""
