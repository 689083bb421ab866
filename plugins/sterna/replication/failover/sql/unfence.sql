-- Give a region's Nessie the right to write references, which makes it the one that takes commits.
GRANT SELECT, INSERT, UPDATE, DELETE ON refs2 TO {role};
