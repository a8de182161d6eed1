"""Lua scripts that change objects, the index and the accounts together.

A record of the index is `handle:id:size:created_at:expires_at:accounts:principal`. The id is that of the upload, so
that a script that is sent again after a lost answer sees that it has run. Records are members of a sorted set with one
score, which Redis keeps in the order of their bytes.

Some scripts must run even while the server has no memory left. Their first write is one that frees memory: Redis then
allows the other writes.
"""

from forebay.store.backends.redis_client import Script

__all__ = [
    "ACQUIRE_LOCK",
    "ADD_COUNTS",
    "APPEND_LINES",
    "CORRECT_ACCOUNTS",
    "DELETE",
    "DELETE_OBJECT",
    "END_UPLOAD",
    "FORGET_RECORDS",
    "MOVE",
    "PUBLISH",
    "RELEASE_LOCK",
    "RENEW_UPLOADS",
    "RESERVE",
    "SETTLE",
]

_FUNCTIONS = """
local function find_record(index, handle)
  return redis.call('ZRANGEBYLEX', index, '[' .. handle .. ':', '(' .. handle .. ';', 'LIMIT', 0, 1)[1]
end

local function parse(record)
  local id, size, accounts = string.match(record, '^[^:]*:([^:]*):([^:]*):[^:]*:[^:]*:([^:]*):')
  return id, tonumber(size), accounts
end

local function now()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1e6
end

-- Add to the accounts, unless nothing was counted yet.
local function change(usage, accounts, size)
  -- Lua formats the negative of 0 as -0, which is no integer to Redis.
  if size == 0 then return end
  if redis.call('HEXISTS', usage, 'total') == 0 then return end
  for name in string.gmatch(accounts, '%S+') do
    local used = redis.call('HINCRBY', usage, name, string.format('%.0f', size))
    if used <= 0 then
      redis.call('HDEL', usage, name)
      if name == 'total' then redis.call('HSET', usage, name, 0) end
    end
  end
end

local function remove_record(index, usage, record)
  if record and redis.call('ZREM', index, record) == 1 then
    local _, size, accounts = parse(record)
    change(usage, accounts, -size)
    return true
  end
  return false
end

-- Return nil if there is room, else the names and bytes of the accounts. `limits` are names and limits by turns.
local function find_shortage(usage, size, freed, limits)
  local has_room, found = redis.call('HEXISTS', usage, 'total') == 1, {}
  for i = 1, #limits, 2 do
    local used = redis.call('HGET', usage, limits[i])
    if used then
      found[#found + 1] = limits[i]
      found[#found + 1] = used
    end
    if limits[i + 1] ~= '' and (tonumber(used) or 0) - freed + size > tonumber(limits[i + 1]) then
      has_room = false
    end
  end
  if not has_room then return found end
end

local function find_freed(record)
  if not record then return 0 end
  local _, size = parse(record)
  return size
end

-- Move a complete upload to the key of its object, unless this was done before.
local function move(upload, object, header, length, milliseconds)
  if redis.call('GETRANGE', object, 0, #header - 1) == header then return true end
  if redis.call('STRLEN', upload) ~= tonumber(length) then return false end
  redis.call('RENAME', upload, object)
  redis.call('PEXPIRE', object, milliseconds)
  return true
end

local function unpack_from(first)
  local rest = {}
  for i = first, #ARGV do rest[#rest + 1] = ARGV[i] end
  return rest
end
"""


def _make_script(body: str) -> Script:
    return Script(_FUNCTIONS + body)


PUBLISH = _make_script("""
local upload, object, index, usage, added, uploads = unpack(KEYS)
local record, handle, lease, header, length, milliseconds = unpack(ARGV)
local id, size, accounts = parse(record)
local old = find_record(index, handle)
if old == record then return {'published'} end
local shortage = find_shortage(usage, size, find_freed(old), unpack_from(7))
if shortage then return {'full', unpack(shortage)} end
if not move(upload, object, header, length, milliseconds) then return {'lost'} end
remove_record(index, usage, old)
redis.call('ZREM', uploads, lease)
redis.call('ZADD', index, 0, record)
redis.call('INCRBY', added, string.format('%.0f', size))
change(usage, accounts, size)
return {'published'}
""")
"""Make an object visible, and count it. In a cluster `RESERVE`, `MOVE` and `SETTLE` do the same in three steps."""

RESERVE = _make_script("""
local index, usage, added, uploads = unpack(KEYS)
local record, handle, lease, seconds = unpack(ARGV)
local id, size, accounts = parse(record)
local old = find_record(index, handle)
if old == record or redis.call('ZSCORE', uploads, record) then return {'reserved'} end
-- What the object replaces counts until `SETTLE`, so there must be room for both.
local shortage = find_shortage(usage, size, 0, unpack_from(5))
if shortage then return {'full', unpack(shortage)} end
redis.call('ZREM', uploads, lease)
redis.call('ZADD', uploads, now() + seconds, record)
redis.call('INCRBY', added, string.format('%.0f', size))
change(usage, accounts, size)
return {'reserved'}
""")
"""Count an upload that is complete. Its record is in `uploads` until `SETTLE` moves it to the index."""

MOVE = _make_script("""
local upload, object = unpack(KEYS)
local header, length, milliseconds = unpack(ARGV)
return move(upload, object, header, length, milliseconds) and 1 or 0
""")

SETTLE = _make_script("""
local index, usage, uploads = unpack(KEYS)
local record, handle = unpack(ARGV)
local old = find_record(index, handle)
if old == record then return 1 end
if redis.call('ZREM', uploads, record) == 0 then return 0 end
remove_record(index, usage, old)
redis.call('ZADD', index, 0, record)
return 1
""")
"""Move a record from `uploads` to the index. Returns 0 if a sweep took the writer for dead."""

END_UPLOAD = _make_script("""
local usage, uploads = unpack(KEYS)
for _, member in ipairs(ARGV) do
  if redis.call('ZREM', uploads, member) == 1 then
    local _, size, accounts = parse(member)
    if size then change(usage, accounts, -size) end
  end
end
""")
"""Give back what unfinished uploads have reserved."""

_ONCE = """
local done = redis.call('GET', KEYS[1])
if done then return tonumber(done) end
local function finish(result)
  redis.call('SET', KEYS[1], result, 'EX', 20)
  return result
end
"""
"""Start of a script that runs once even if the request is sent again. `KEYS[1]` keeps the result."""

DELETE = _make_script(
    _ONCE
    + """
local _, index, usage, object = unpack(KEYS)
local was_stored = redis.call('UNLINK', object) == 1
local had_record = remove_record(index, usage, find_record(index, ARGV[1]))
return finish((was_stored or had_record) and 1 or 0)
"""
)
"""Delete an object. Returns 1 if it existed; an evicted object exists as long as its record."""

DELETE_OBJECT = _make_script(_ONCE + "return finish(redis.call('UNLINK', KEYS[2]))")
"""Delete an object in a cluster, and return 1 if it existed. Of several processes, only one gets 1."""

FORGET_RECORDS = _make_script("""
local index, usage = unpack(KEYS)
for _, record in ipairs(ARGV) do remove_record(index, usage, record) end
""")
"""Remove records of objects that are gone."""

CORRECT_ACCOUNTS = _make_script("""
local usage, added = unpack(KEYS)
local before = tonumber(ARGV[1])
local since = (tonumber(redis.call('GET', added)) or 0) - before
if since < 0 then return 0 end
for i = 2, #ARGV, 2 do
  local name, most = ARGV[i], tonumber(ARGV[i + 1]) + since
  local used = tonumber(redis.call('HGET', usage, name))
  if not used or used > most then
    redis.call('HDEL', usage, name)
    if most > 0 or name == 'total' then redis.call('HSET', usage, name, string.format('%.0f', most)) end
  end
end
return 1
""")
"""Lower accounts to the counted bytes plus all bytes that were added since the count began."""

RENEW_UPLOADS = _make_script("""
local uploads = KEYS[1]
local seconds, is_new = ARGV[1], ARGV[2]
-- The first write must be one that frees memory.
redis.call('ZREM', uploads, '')
for _, member in ipairs(unpack_from(3)) do
  if is_new == '1' or redis.call('ZSCORE', uploads, member) then
    redis.call('ZADD', uploads, now() + seconds, member)
  end
end
""")
"""Register new uploads, or renew those that no sweep has removed."""

ACQUIRE_LOCK = _make_script("""
local lock, token, seconds = KEYS[1], ARGV[1], ARGV[2]
local held = redis.call('GET', lock)
local holder, deadline = string.match(held or '', '^(%S+) (%S+)$')
if holder and holder ~= token and tonumber(deadline) > now() then return 0 end
redis.call('UNLINK', lock)
redis.call('SET', lock, token .. ' ' .. string.format('%.3f', now() + seconds))
return 1
""")
"""Acquire the lock, or extend it. The key has no expiry of its own, because Redis may evict keys that have one."""

RELEASE_LOCK = _make_script("""
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%S+') == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
""")

APPEND_LINES = _make_script(
    _ONCE
    + """
for _, line in ipairs(unpack_from(2)) do
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], '*', 'line', line)
end
return finish(1)
"""
)

ADD_COUNTS = _make_script(
    _ONCE
    + """
local _, counts, days = unpack(KEYS)
local day, other, max_fields, width = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
for i = 5, #ARGV, width + 1 do
  local row = ARGV[i]
  if redis.call('HEXISTS', counts, row .. ' 0') == 0 and redis.call('HLEN', counts) >= max_fields then row = other end
  for column = 0, width - 1 do
    redis.call('HINCRBY', counts, row .. ' ' .. column, ARGV[i + 1 + column])
  end
end
redis.call('ZADD', days, 0, day)
return finish(1)
"""
)
