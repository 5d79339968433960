"""Privacy: mechanisms that draw noise and state what it costs, accounting, certificates."""
