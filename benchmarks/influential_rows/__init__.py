"""Is PenaltyMH right, or does it warn, where single rows matter?"""
