-- What a batch that was taken leaves: the group behind it, and its entries to delete. See `gathered`.

-- Returns what is left of a group, as the record of a successor: it is due at once (ms) if it has a full batch.
local function rest_of(one, now, retry_count, header_text)
  local due = (one.count > one.last or one.last >= one.most) and now or one.due
  return successor_record(due, retry_count, header_text, group_text(one), '')
end

-- Deletes the entries of the batches that were taken.
local function delete_taken(gathered)
  for first = 1, #taken, 1000 do
    redis.call('HDEL', gathered, unpack(taken, first, math.min(first + 999, #taken)))
  end
end
