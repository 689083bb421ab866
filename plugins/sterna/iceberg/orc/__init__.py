"""ORC files as far as position deletes need them: frame, compression, run lengths and columns, read and written."""
