"""Change capture: what happens to the rows of a database happens to tables on `main`, whole transactions, once."""
