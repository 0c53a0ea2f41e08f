"""One tower shown pictures: compared with its original, and with what attention should give."""
