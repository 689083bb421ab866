"""What a region serves: the HTTP gateway and named queries."""
