"""Lua scripts: atomic steps of the store, so that a view's state can't change between its read and a write.

Source: Valkey's documentation, "Scripting with Lua": a script runs to its end before any other client is answered.
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

# KEYS: the state. ARGV: generation and run. A newer run, or another generation, ends this one.
_STOP_IF_REPLACED = (
    f"if redis.call('HGET', KEYS[1], '{GENERATION}') ~= ARGV[1] or redis.call('HGET', KEYS[1], '{RUN}') ~= ARGV[2]"
    " then return -1 end"
)

# KEYS: the state. ARGV: the generation and the run that were seen, "full" or "", target, digest, columns.
# The run: one that began since may have written, and died, which the plan doesn't include.
# A full run begins a new generation, with a number that no other had: neither the one before, nor one before the store
# was lost.
BEGIN = f"""
local generation = redis.call('HGET', KEYS[1], '{GENERATION}') or '0'
local run = redis.call('HGET', KEYS[1], '{RUN}') or '0'
if generation ~= ARGV[1] or run ~= ARGV[2] then return {{0, 0}} end
if ARGV[3] == 'full' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  generation = string.format('%.0f', math.max(tonumber(generation) + 1, now))
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], '{GENERATION}', generation, '{DIGEST}', ARGV[5], '{COLUMNS}', ARGV[6])
end
local mine = redis.call('HINCRBY', KEYS[1], '{RUN}', 1)
redis.call('HSET', KEYS[1], '{PENDING}', ARGV[4])
return {{tonumber(generation), mine}}
"""

# KEYS: the state, then those of values. ARGV: generation, run, milliseconds that a tombstone stays, then a value a key.
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

# KEYS: the state. ARGV: generation, run, snapshot, its time, the server's id.
FINISH = f"""
{_STOP_IF_REPLACED}
redis.call('HSET', KEYS[1], '{DONE}', ARGV[2], '{SNAPSHOT}', ARGV[3], '{AT}', ARGV[4], '{READY}', ARGV[5])
redis.call('HDEL', KEYS[1], '{PENDING}')
return 1
"""

# KEYS: the state, a value's. ARGV: generation and floor that were seen, value, milliseconds that it stays, digest seen.
# What an unfinished run wrote stays: it is newer than any floor.
FILL = f"""
local state = redis.call('HMGET', KEYS[1], '{GENERATION}', '{SNAPSHOT}', '{DONE}', '{DIGEST}')
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] or state[4] ~= ARGV[5] then return 0 end
local there = redis.call('GET', KEYS[2])
if there then
  local generation, run = string.match(there, '^%d+ (%d+) (%d+) ')
  if generation == ARGV[1] and tonumber(run) > tonumber(state[3]) then return 0 end
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return 1
"""

# KEYS: the state. ARGV: why, "" where the view is only emptied.
# A run that is under way finds another generation, and a reader finds nothing.
EXCLUDE = f"""
local generation = tonumber(redis.call('HGET', KEYS[1], '{GENERATION}') or '0')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
generation = math.max(generation + 1, now)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], '{GENERATION}', string.format('%.0f', generation), '{REFUSED}', ARGV[1])
return generation
"""

# KEYS: values'. ARGV: the current generation. Only values of older generations are deleted: a sweep may have been
# suspended, and what a newer generation wrote meanwhile has to stay.
DELETE_OLDER = """
local gone = 0
for at = 1, #KEYS do
  local generation = tonumber(string.match(redis.call('GETRANGE', KEYS[at], 0, 63), '^%d+ (%d+) ') or '')
  if not generation or generation < tonumber(ARGV[1]) then gone = gone + redis.call('UNLINK', KEYS[at]) end
end
return gone
"""
