-- Take the right to write from a region's Nessie. The lock waits for the commits that are under way: none ends after the fence. It lets
-- readers be, a dump that takes hours among them: they neither hold it up nor wait for it.
LOCK TABLE refs2 IN SHARE ROW EXCLUSIVE MODE;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON refs2 FROM {role};
