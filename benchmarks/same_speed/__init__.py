"""Is a kernel as fast as at another commit?"""
