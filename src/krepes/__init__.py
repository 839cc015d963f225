"""KREPES: why does a self-supervised encoder put this sample here, and which training data put it there?"""

__version__ = "0.1.0"
