"""A bandwidth's text means what rclone takes it for, at any time of the week; what rclone refuses is refused.

A timetable has its zone beside that, and is refused where it could be read in two ways. Of this kind: a setting that is
only handed on, whose mistakes nobody sees before it is used.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sterna.config.registry.bandwidth import parse_bandwidth
from sterna.config.registry.load import parse_registry
from sterna.errors import RegistryError
from sterna.storage.rclone.transfer import find_rclone
from tests.unit.config import samples

DAYS = ("Sun", "monday", "Tue", "Wednesday", "thu", "Fri", "Sat")
DAY = "00:30,100b 06:00,512k 09:15,2M 12:00,off 13:00,1.5M 18:00,3Mi 21:45,.5M 23:00,7KiB"
RATES = ["2M", "512", "1.5M", "10M:100k", "1k:off", "off", "100B", "2Ti"]
TIMETABLES = [DAY, "08:00,1M  19:00,2M ", "Mon-00:00,512 12:00,1M Sun-20:00,off"]
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Pacific/Kiritimati", "Etc/GMT+12"]
REFUSED_RATES = ["2MB", "1Q", "-1", " 2M ", "1M:", "1i"]
REFUSED_TIMETABLES = ["1,2", "8:00,1M", "24:00,1M", "08:00, 1M", "Tues-00:00,1M", "08:00,1M 09:00"]
AMBIGUOUS = {
    "08:00,10M 18:00,off": "no time zone: add it at the end",
    "08:00,10M": "no time zone",
    "08:00,10M 18:00,off Berlin": "'Berlin' is no time zone",
    "08:00,10M 18:00,off Europe": "'Europe' is no time zone",
    "08:00,10M 18:00,off ../UTC": "bandwidth",
    "10M UTC": "'10M' is no time and rate",
    "08:00,10M 18:00,off 08:00,20M UTC": "'08:00' is in the timetable twice",
    "Mon-08:00,10M monday-08:00,20M UTC": "'monday-08:00' is in the timetable twice",
    "18:00,off 08:00,10M UTC": "'08:00' comes after '18:00': put the times in order",
    "Mon-08:00,1M Wed-08:00,2M Tue-08:00,3M UTC": "'Tue-08:00' comes after 'Wed-08:00'",
    "Sat-00:00,off Mon-08:00,10M Sun-08:00,off UTC": "'Sun-08:00' comes after 'Mon-08:00'",
    "08:00,10M 18:00,off Mon-08:00,20M UTC": "'Mon-08:00' overlaps '08:00', which is for every day",
    "08:00,0 18:00,off UTC": "'0' is a rate of 0",
    "08:00,10M:0 18:00,off UTC": "'0' is a rate of 0",
    "0": "'0' is a rate of 0",
    "0.0001b": "'0.0001b' is a rate of 0",
    "08:00,10M 18:00,off localtime": "'localtime' is another time on each machine",
    "08:00,10M 18:00,off posixrules": "'posixrules' is another time on each machine",
    "08:00,10M 18:00,off Factory": "'Factory' is another time on each machine",
    "9" * 320 + "M": "is no rate: it is above what rclone counts to",
    "08:00,16E 18:00,off UTC": "'16E' is no rate",
    "8E": "'8E' is no rate",
    "Someday-08:00,10M UTC": "'Someday' is no day of the week",
}


def of_rclone(text: str, zone: str) -> int | None:
    """Ask rclone itself, on a machine of a time zone; the smaller one of both ways counts."""
    environment = {**os.environ, "TZ": zone, "RCLONE_CONFIG": os.devnull}
    command = [str(find_rclone()), "rc", "--loopback", "core/bwlimit", "--bwlimit", text]
    output = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60).stdout
    rates = [rate for name, rate in json.loads(output).items() if name in ("bytesPerSecondTx", "bytesPerSecondRx")]
    return min((rate for rate in rates if rate >= 0), default=None)


def week(first: int) -> str:
    """Return a timetable whose days are so many later."""
    sunday, monday, tuesday, _, _, friday, saturday = (DAYS[(first + number) % 7] for number in range(7))
    return (
        f"{monday}-00:00,512 {monday}-18:00,3M {tuesday}-06:30,1M {friday}-23:59,10M {saturday}-10:00,1M:300k "
        f"{sunday}-20:00,off"
    )


@pytest.mark.parametrize(
    ("text", "zone"),
    [(rate, "") for rate in RATES]
    + [(text, "UTC") for text in TIMETABLES]
    + [(DAY, zone) for zone in ZONES[1:]]
    + [(week(first), "UTC") for first in range(7)],
)
def test_a_rate_is_what_rclone_takes_it_for(text: str, zone: str) -> None:
    bandwidth, before = parse_bandwidth(f"{text} {zone}" if zone else text), datetime.now(UTC)
    rate = of_rclone(text, zone or "UTC")
    assert rate in {bandwidth.rate_at(before), bandwidth.rate_at(datetime.now(UTC))}


@pytest.mark.parametrize("text", REFUSED_RATES + REFUSED_TIMETABLES)
def test_what_rclone_refuses_is_refused_in_the_registry(text: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        of_rclone(text, "UTC")
    refuse(f"{text} UTC" if text in REFUSED_TIMETABLES else text, "bandwidth")


@pytest.mark.parametrize(("text", "message"), AMBIGUOUS.items())
def test_what_could_be_read_in_two_ways_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    refuse(text, message)


def refuse(text: str, message: str) -> None:
    content = samples.content([samples.location("lake", "s3://lake", bandwidth=text)])
    with pytest.raises(RegistryError, match="bandwidth") as raised:
        parse_registry(json.dumps(content, indent=1), "r.json")
    assert message in str(raised.value)


@pytest.mark.parametrize("seed", range(20))
def test_a_rate_counts_from_its_time_to_the_next_one_by_the_zones_clock(seed: int) -> None:
    """At any moment of a year the rate is that of the last time that the zone's clock showed; in a mix of entries for
    every day and for single ones, in hours that a change of clocks skips or repeats, too."""
    chance = random.Random(seed)
    zone = ZoneInfo(chance.choice(ZONES))
    minutes = sorted(chance.sample(range(24 * 60), chance.randint(1, 6)))
    daily, dated = minutes[::2], sorted((chance.randrange(7), minute) for minute in minutes[1::2])
    first = chance.randrange(len(dated) or 1)
    texts = [f"{minute // 60:02}:{minute % 60:02},{number + 1}k" for number, minute in enumerate(daily)]
    texts += [
        f"{DAYS[day]}-{minute // 60:02}:{minute % 60:02},{day * 1440 + minute + 100}k"
        for day, minute in dated[first:] + dated[:first]
    ]
    bandwidth = parse_bandwidth(f"{' '.join(texts)} {zone}")
    rates = {day * 1440 + minute: number + 1 for number, minute in enumerate(daily) for day in range(7)}
    rates |= {day * 1440 + minute: day * 1440 + minute + 100 for day, minute in dated}
    for _ in range(100):
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(366 * 1440))
        shown = moment.astimezone(zone)
        minute = (shown.isoweekday() % 7) * 1440 + shown.hour * 60 + shown.minute
        while minute not in rates:
            minute = (minute - 1) % (7 * 1440)
        assert bandwidth.rate_at(moment) == rates[minute] * 1024


def test_where_clocks_are_put_forward_over_a_time_its_rate_begins_right_after() -> None:
    bandwidth, zone = parse_bandwidth("00:00,1M 02:30,2M 04:00,3M Europe/Berlin"), ZoneInfo("Europe/Berlin")
    assert bandwidth.rate_at(datetime(2026, 3, 29, 1, 59, tzinfo=zone)) == 1 << 20
    assert bandwidth.rate_at(datetime(2026, 3, 29, 3, 0, tzinfo=zone)) == 2 << 20
    repeated = [datetime(2026, 10, 25, hour, minute, tzinfo=UTC) for hour in (0, 1) for minute in (29, 30)]
    assert [bandwidth.rate_at(moment) for moment in repeated] == [1 << 20, 2 << 20] * 2
