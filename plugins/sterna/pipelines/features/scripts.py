"""Lua scripts: atomic steps of the store, so that a view's state can't change between its read and a write.

Source: Valkey's documentation, "Scripting with Lua": a script runs whole before anybody else is answered.
"""

from __future__ import annotations

from sterna.pipelines.features.model import (
    AT,
    COLUMNS,
    DIGEST,
    DONE,
    GENERATION,
    GONE,
    PENDING,
    READY,
    REFUSED,
    RUN,
    SNAPSHOT,
)

# KEYS: the state. ARGV: epoch and run. A newer run, or another epoch, ends this one.
_STOP_IF_REPLACED = (
    f"if redis.call('HGET', KEYS[1], '{GENERATION}') ~= ARGV[1] or redis.call('HGET', KEYS[1], '{RUN}') ~= ARGV[2]"
    " then return -1 end"
)

# KEYS: the state. ARGV: the epoch and the run that were seen, "full" or "", target, digest, columns.
# The run: one that began since may have written, and died, which nobody has planned for.
# A full run begins a new epoch, whose number no other had: not the one before, and not one before the store was lost.
BEGIN = f"""
local epoch = redis.call('HGET', KEYS[1], '{GENERATION}') or '0'
local run = redis.call('HGET', KEYS[1], '{RUN}') or '0'
if epoch ~= ARGV[1] or run ~= ARGV[2] then return {{0, 0}} end
if ARGV[3] == 'full' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  epoch = string.format('%.0f', math.max(tonumber(epoch) + 1, now))
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], '{GENERATION}', epoch, '{DIGEST}', ARGV[5], '{COLUMNS}', ARGV[6])
end
local mine = redis.call('HINCRBY', KEYS[1], '{RUN}', 1)
redis.call('HSET', KEYS[1], '{PENDING}', ARGV[4])
return {{tonumber(epoch), mine}}
"""

# KEYS: the state, then those of values. ARGV: epoch, run, milliseconds that a tombstone stays, then a value a key.
PUT = f"""
{_STOP_IF_REPLACED}
for at = 2, #KEYS do
  local value = ARGV[at + 2]
  if string.match(value, '^[^\\n]* {GONE}\\n') then
    redis.call('SET', KEYS[at], value, 'PX', ARGV[3])
  else
    redis.call('SET', KEYS[at], value)
  end
end
return #KEYS - 1
"""

# KEYS: the state. ARGV: epoch, run, snapshot, its time, the server's mark.
FINISH = f"""
{_STOP_IF_REPLACED}
redis.call('HSET', KEYS[1], '{DONE}', ARGV[2], '{SNAPSHOT}', ARGV[3], '{AT}', ARGV[4], '{READY}', ARGV[5])
redis.call('HDEL', KEYS[1], '{PENDING}')
return 1
"""

# KEYS: the state, a value's. ARGV: epoch and floor that were seen, value, milliseconds that it stays, digest seen.
# What an unfinished run wrote stays: it is newer than any floor.
FILL = f"""
local state = redis.call('HMGET', KEYS[1], '{GENERATION}', '{SNAPSHOT}', '{DONE}', '{DIGEST}')
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] or state[4] ~= ARGV[5] then return 0 end
local there = redis.call('GET', KEYS[2])
if there then
  local epoch, run = string.match(there, '^%d+ (%d+) (%d+) ')
  if epoch == ARGV[1] and tonumber(run) > tonumber(state[3]) then return 0 end
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return 1
"""

# KEYS: the state. ARGV: why, "" where the view is only emptied.
# A run that is under way finds another epoch, and a reader that there is nothing.
EXCLUDE = f"""
local epoch = tonumber(redis.call('HGET', KEYS[1], '{GENERATION}') or '0')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
epoch = math.max(epoch + 1, now)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], '{GENERATION}', string.format('%.0f', epoch), '{REFUSED}', ARGV[1])
return epoch
"""

# KEYS: values'. ARGV: the epoch that counts. Only what older epochs left behind is taken: whoever sweeps may have
# slept, and what a newer epoch wrote meanwhile isn't there to be taken.
DELETE_OLDER = """
local gone = 0
for at = 1, #KEYS do
  local epoch = tonumber(string.match(redis.call('GETRANGE', KEYS[at], 0, 63), '^%d+ (%d+) ') or '')
  if not epoch or epoch < tonumber(ARGV[1]) then gone = gone + redis.call('UNLINK', KEYS[at]) end
end
return gone
"""
