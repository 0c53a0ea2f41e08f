"""The page, in Gradio: the layout, and what happens when something is pressed."""
