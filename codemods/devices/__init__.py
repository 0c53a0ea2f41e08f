"""What code does on a device: which branches ask for one, what a tensor's memory looks like, what is sent from it."""
