"""Audits: what the latent space preserves, whom it conflates, and how far the surrogate can be trusted."""
