"""A bandwidth's text means what rclone takes it for, at any time of the week; what rclone refuses is refused.

Of this kind: a value that is only handed on, whose mistakes nobody sees before it is used.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sterna.config.registry.bandwidth import parse_bandwidth
from sterna.config.registry.load import parse_registry
from sterna.errors import RegistryError
from sterna.storage.rclone.transfer import find_rclone
from tests.unit.config import samples

DAYS = ("Sun", "monday", "Tue", "Wednesday", "thu", "Fri", "Sat")
DAY = "00:30,100b 06:00,512k 09:15,2M 12:00,off 13:00,1.5M 18:00,3Mi 21:45,.5M 23:00,7KiB"
TAKEN = ["2M", "512", "1.5M", "10M:100k", "1k:off", "off", "0", "100B", "2Ti", DAY, "08:00,1M  19:00,2M "]
REFUSED = ["2MB", "1Q", "-1", "1,2", "8:00,1M", "24:00,1M", "08:00, 1M", " 2M ", "1M:", "Tues-00:00,1M", "1i"]


def of_rclone(text: str, hours: int) -> int | None:
    """Ask rclone itself, in a time zone so many hours from UTC; the smaller one of both ways counts."""
    environment = {**os.environ, "TZ": f"Etc/GMT{-hours:+}", "RCLONE_CONFIG": os.devnull}
    command = [str(find_rclone()), "rc", "--loopback", "core/bwlimit", "--bwlimit", text]
    output = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60).stdout
    rates = [rate for name, rate in json.loads(output).items() if name in ("bytesPerSecondTx", "bytesPerSecondRx")]
    return min((rate for rate in rates if rate >= 0), default=None)


def minute_of_week(hours: int) -> int:
    now = datetime.now(UTC).astimezone(timezone(timedelta(hours=hours)))
    return (now.isoweekday() % 7) * 1440 + now.hour * 60 + now.minute


def week(first: int) -> str:
    """Return a timetable whose days are so many later."""
    sunday, monday, tuesday, _, _, friday, saturday = (DAYS[(first + number) % 7] for number in range(7))
    return (
        f"{monday}-00:00,512 {tuesday}-06:30,1M {friday}-23:59,10M {saturday}-10:00,1M:300k {sunday}-20:00,off "
        f"{monday}-18:00,3M"
    )


@pytest.mark.parametrize(
    ("text", "hours"),
    [(text, 0) for text in TAKEN]
    + [(DAY, hours) for hours in (-12, -8, -4, 5, 10, 14)]
    + [(week(first), 0) for first in range(7)],
)
def test_a_rate_is_what_rclone_takes_it_for(text: str, hours: int) -> None:
    before = minute_of_week(hours)
    rate = of_rclone(text, hours)
    assert rate in {parse_bandwidth(text).rate_at(before), parse_bandwidth(text).rate_at(minute_of_week(hours))}


@pytest.mark.parametrize("text", REFUSED)
def test_what_rclone_refuses_is_refused_in_the_registry(text: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        of_rclone(text, 0)
    content = samples.content([samples.location("lake", "s3://lake", bandwidth=text)])
    with pytest.raises(RegistryError, match="bandwidth"):
        parse_registry(json.dumps(content, indent=1), "r.json")
