"""Does compile time stay flat in the number of subsets, and does memory fall with it?"""
