"""The potential as a sum over subsets: a model or two functions, the density of a block of rows, sums and gradients."""
