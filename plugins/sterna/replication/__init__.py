"""The core: plan, copy, localize, publish; verify, repair, failover."""
