"""What it does to the estimates of a run that it stops when its own draws say that they are enough."""
