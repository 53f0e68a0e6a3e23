local function light(n)
  local total = 0
  for i = 0, n - 1 do
    total = total + (i & 7)
  end
  return total
end

function heavy(n)
  local total = 0
  for i = 0, 3 * n - 1 do
    total = total + (i & 7)
  end
  return total
end

local Shape = {}

function Shape:area(n)
  local first = light(n)
  return first + heavy(n)
end

function Shape.twice(n)
  local first = light(n)
  return first + light(n)
end

local function each(n)
  for _ = 1, 3 do
    local value = light(n)
    coroutine.yield(value)
  end
end

local function main()
  local total = 0
  for _ = 1, 20 do
    total = total + Shape:area(3000)
    total = total + Shape.twice(3000)
    local values = coroutine.wrap(each)
    for _ = 1, 3 do
      total = total + values(3000)
    end
    local all = { 2, 1 }
    table.sort(all, function(a, b)
      local weight = heavy(3000)
      return weight > 0 and a < b
    end)
    total = total + all[1]
  end
  print(total, #arg)
end

main()
