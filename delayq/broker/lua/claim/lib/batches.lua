-- The batches of groups that are due: see `gathered`. What a group has gathered beyond its first batch is stored as the
-- successor, with the same retries and headers.
local batches = {payloads = {}, texts = {}, rests = {}}

-- Takes the first batch of each group among what is due (ids and scores), as far as the budget allows. Returns how many ids
-- are moved, and the attributes of all.
local function take_batches(gathered, retries, messages, headers, attributes, successors, step, due, now)
  if not step then return #due / 2, {} end -- without groups, as without priorities
  local ids, payloads, closed, rests = {}, batches.payloads, batches.texts, batches.rests
  for n = 1, #due / 2 do ids[n] = due[2 * n - 1] end
  local texts = attributes_to_rank(attributes, step, ids)
  for n, text in ipairs(texts) do
    local one, id = text and string.find(text, ' gathers=', 1, true) and group_of(text), ids[n]
    if one then
      if bytes_left <= 0 or #taken >= 1000 then return n - 1, texts end
      redis.call('HLEN', messages)
      redis.call('HLEN', successors)
      payloads[#payloads + 1], payloads[#payloads + 2] = id, take_batch(gathered, id, one)
      texts[n] = closed_text(one)
      closed[#closed + 1], closed[#closed + 2] = id, texts[n]
      if one.count > 0 then
        rests[#rests + 1], rests[#rests + 2] = id, rest_of(one, now, retries_of(retries, {id})[1], read_payload(headers, id) or '')
      end
    end
  end
  return #ids, texts
end

local function store_batches(messages, attributes, successors, gathered)
  if #batches.payloads == 0 then return end
  redis.call('HSET', messages, unpack(batches.payloads))
  redis.call('HSET', attributes, unpack(batches.texts))
  if #batches.rests > 0 then redis.call('HSET', successors, unpack(batches.rests)) end
  delete_taken(gathered)
end
