"""What an RL environment is (`taskset`), and how each framework stores it: a folder a format, named in `catalogue`."""
