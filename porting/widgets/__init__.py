"""The notebooks' panels, made of ipywidgets: clicked while a kernel runs, and read without one.

Each notebook has a module of steps, which its cells call: `migrating` and its like. The panels behind the steps
(`Pick`, `Findings` and so on, each in a module of its own) are usable alone, in any notebook.
"""
