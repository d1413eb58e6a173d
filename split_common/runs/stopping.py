class StopWhen:
    pass
