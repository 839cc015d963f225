"""The self-supervised objectives, one file each."""
