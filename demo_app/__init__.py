"""A page that draws pictures with words on one side and talks about pictures on the other: `python -m demo_app`."""
