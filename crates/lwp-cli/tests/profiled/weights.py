import functools
import sys
import threading


def light(n):
    total = 0
    for i in range(n):
        total += i & 7
    return total


def heavy(n):
    total = 0
    for i in range(3 * n):
        total += i & 7
    return total


class Shape:
    def area(self, n):
        first = light(n)
        return first + heavy(n)

    @staticmethod
    def twice(n):
        return sum(map(light, [n, n]))


def each(n):
    for _ in range(3):
        yield light(n)


def worker(n):
    for _ in range(20):
        heavy(n)


def main():
    thread = threading.Thread(target=worker, args=(3000,))
    thread.start()
    total = 0
    for _ in range(20):
        total += Shape().area(3000)
        total += Shape.twice(3000)
        total += sum(each(3000))
        total += sorted([2, 1], key=lambda n: heavy(3000))[0]
    thread.join()
    print(total, sys.flags.dev_mode, len(sys.orig_argv) if hasattr(sys, "orig_argv") else 0)


main()
