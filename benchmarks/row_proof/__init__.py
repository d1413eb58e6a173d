"""How long a proof takes that a model's rows are independent, in both packages."""
