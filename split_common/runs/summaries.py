class RunningSummary:
    pass
