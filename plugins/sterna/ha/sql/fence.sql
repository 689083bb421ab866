-- Take the right to write from a region's Nessie. The lock waits for the commits that are under way: none ends after the fence.
LOCK TABLE refs2 IN ACCESS EXCLUSIVE MODE;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON refs2 FROM {role};
