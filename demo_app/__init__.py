"""The demo: a page where one side draws pictures from words and the other talks about pictures."""
