# Recursion, objects, closures, strings and a dictionary. Prints a sum, and the microseconds of the
# second half of the rounds.
import time

ROUNDS = 16


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def plus(self, other):
        return Point(self.x + other.x, self.y ^ other.y)


STEPS = [lambda n: n + 1, lambda n: n * 3 & 0xFFFFFF, lambda n: n ^ 7]


def round_of(number):
    total = fibonacci(25)
    point = Point(0, 0)
    for at in range(1_500_000):
        point = point.plus(Point(at & 3, at))
    total += point.x + point.y
    for at in range(3_000_000):
        total = STEPS[at % 3](total) & 0xFFFFFF
    counts = {}
    for at in range(200_000):
        key = "key " + str((at * 7 + number) % 4000)
        counts[key] = counts.get(key, 0) + at
    for value in counts.values():
        total = (total + value) & 0xFFFFFF
    return total


total, begun = 0, 0
for number in range(ROUNDS):
    if number == ROUNDS // 2:
        begun = time.perf_counter_ns()
    total = (total * 31 + round_of(number)) & 0xFFFFFF
print(total)
print((time.perf_counter_ns() - begun) // 1000)
