"""Tables that follow others: each step brings what changed in its source, once (docs/transforms.md)."""
