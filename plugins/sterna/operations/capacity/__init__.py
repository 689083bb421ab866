"""What a region needs, and what gives way first: a model of measured unit costs. Pure."""
