"""How a model divides over its rows, and how that is known: sites, row independence, comparison, conjugacy."""
