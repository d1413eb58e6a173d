"""What it costs that a state knows its data: the digest on the host, in the graph, and what a run spends on both."""
