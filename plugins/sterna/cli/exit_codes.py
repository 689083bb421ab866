"""What the exit codes of commands mean; those of errors stand on the errors (`sterna.errors`)."""

from __future__ import annotations

UNEXPECTED = 1
RETRY_LATER = 4  # something does not answer: a later run resumes
HELD = 5  # tables are held, what came in waits for too long or is bad, or features are late
CHANGED = 6  # the replica branch can't be used: changed by somebody else, or `main` has diverged
FAULTS = 7  # verify found faults, or features that differ, repair left some, or an outlet that is gone has a position
BLOCKED = 8  # upkeep has to wait: for a region, or for a file that can't be read
INTERRUPTED = 130

EPILOG = (
    "Exit codes: 0 good; 1 unexpected; 2 wrong registry, services file, option or name; 3 credential missing or "
    "refused; 4 something does not answer, a later run resumes; 5 tables are held, or what came in waits for too "
    "long or is bad; 6 the replica branch was changed by somebody else, or main has diverged; 7 verify found faults, "
    "repair left some, gc met a file that it can't read, or an outlet that is gone has a position; 8 upkeep has to "
    "wait for a region, or for metadata that it can't read; 130 interrupted. Errors go to stderr, with --json as one "
    "JSON object."
)
