-- Recursion, tables, closures and strings. Prints a sum, and the microseconds of the second half of
-- the rounds.
local ROUNDS = 16
local function fibonacci(n)
    return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2)
end
local Point = {}
Point.__index = Point
local function point(x, y)
    return setmetatable({ x = x, y = y }, Point)
end
function Point:plus(other)
    return point(self.x + other.x, (self.y + other.y) % 65521)
end
local steps = {
    function(n) return n + 1 end,
    function(n) return n * 3 % 16777213 end,
    function(n) return n > 7 and n - 7 or n end,
}
local function round(number)
    local sum, place = fibonacci(27), point(0, 0)
    for at = 1, 1000000 do
        place = place:plus(point(at % 4, at))
    end
    sum = sum + place.x + place.y
    for at = 1, 2000000 do
        sum = steps[at % 3 + 1](sum) % 16777213
    end
    local map = {}
    for at = 1, 100000 do
        local key = "key " .. (at * 7 + number) % 4000
        map[key] = (map[key] or 0) + at
    end
    for key = 0, 3999 do
        sum = (sum + (map["key " .. key] or 0)) % 16777213
    end
    return sum
end
local sum, begun = 0, 0
for number = 0, ROUNDS - 1 do
    if number == ROUNDS / 2 then
        begun = os.clock()
    end
    sum = (sum * 31 + round(number)) % 16777213
end
print(string.format("%d", sum))
print(string.format("%d", (os.clock() - begun) * 1e6))
