"""Files that are there whole or not at all, and one format for tensors with what is known about them."""
