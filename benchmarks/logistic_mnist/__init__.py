"""Table 1 of Cobb and Jalaian (2021): acceptance of plain, naive, randomised and symmetric split HMC on MNIST."""
