"""Does the number of subsets that ``num_subsets="auto"`` chooses keep a gradient's memory within what was given?"""
