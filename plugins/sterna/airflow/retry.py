"""Which failures are worth a retry: by the remedy of each of sterna's errors."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import RetryDecision, RetryPolicy

from sterna.errors import Remedy, SternaError
from sterna.operations.run_book import describe_with_card
from sterna.runtime.retry_delay import RetryDelay

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
        reason = describe_with_card(exception)
        if exception.remedy is not Remedy.RETRY:
            return RetryDecision.fail(reason)
        delay = RetryDelay(self.delay.total_seconds(), self.max_delay.total_seconds())
        return RetryDecision.retry(timedelta(seconds=delay.longest(try_number)), reason)
