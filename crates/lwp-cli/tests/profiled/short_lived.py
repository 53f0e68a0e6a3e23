"""Functions that are made and dropped while their samples are taken, called in many ways."""


def recurse(depth):
    return depth if depth == 0 else recurse(depth - 1) + 1


def generate(count):
    for number in range(count):
        yield number * recurse(number % 17)


def throw(number):
    if number % 3 == 0:
        raise ValueError(number)
    return number


class Ordered:
    def __init__(self, key):
        self.key = key

    def __lt__(self, other):
        return self.key % 31 < other.key % 31


def main():
    total = 0
    for round in range(60):
        names = {}
        exec(f"def made_{round}(x):\n  return [x + {round} for _ in range(40)]", names)
        total += sum(names[f"made_{round}"](round))
        total += eval(f"(lambda x: sum(x * {round} for _ in range(30)))(3)")
        total += sum(generate(40))
        try:
            total += throw(round)
        except ValueError as error:
            total += len(str(error))
        total += sorted(Ordered(7 * number) for number in range(60))[0].key
    print(total)


main()
