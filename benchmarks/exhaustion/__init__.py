"""XHMC against NUTS: effective draws per thousand gradients, by criterion and threshold."""
