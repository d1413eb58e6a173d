"""Does a kernel with nothing but ``num_subsets`` given arrive where the host's NUTS does, and at what price?"""
