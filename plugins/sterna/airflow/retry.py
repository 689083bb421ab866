"""Which failures are worth a retry: by the remedy of each of sterna's errors."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import RetryDecision, RetryPolicy

from sterna.errors import Remedy, SternaError
from sterna.runtime.failures import describe_error

if TYPE_CHECKING:
    from airflow.sdk import Context


class RemedyRetryPolicy(RetryPolicy):
    """Repeat after errors that time may cure, fail at once after those that need an operator.

    An error that isn't sterna's, a missed deadline for example, follows the task's own `retries` and `retry_delay`.

    Args:
        delay: pause before the second try; doubled for each further one.
        max_delay: the longest pause.
    """

    def __init__(self, delay: timedelta = timedelta(seconds=5), max_delay: timedelta = timedelta(minutes=5)) -> None:
        self.delay = delay
        self.max_delay = max_delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return what to do about a failure (see `RetryPolicy.evaluate`)."""
        if not isinstance(exception, SternaError):
            return RetryDecision.default()
        reason = describe_error(exception)
        if exception.remedy is not Remedy.RETRY:
            return RetryDecision.fail(reason)
        # The exponent is bounded because a timedelta is: Airflow allows any number of retries.
        return RetryDecision.retry(min(self.delay * 2 ** min(try_number - 1, 16), self.max_delay), reason)
