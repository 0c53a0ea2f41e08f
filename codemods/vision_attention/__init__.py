"""What a vision attention class is: its dispatch, layouts, heads, scale and sequence lengths, read from structure
alone."""
