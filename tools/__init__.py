"""What keeps the documents true to the code."""
