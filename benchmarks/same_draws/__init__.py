"""Are the draws of every kernel those of another commit, bit for bit?"""
