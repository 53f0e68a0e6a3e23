import sys
import time

clock = time.thread_time_ns
spent = {"computes": 0, "computes_less": 0}


def computes():
    total = 0
    for i in range(20000):
        total += i & 7
    return total


def computes_less():
    total = 0
    for i in range(5000):
        total += i & 7
    return total


def main(turns):
    for _ in range(turns):
        for function in (computes, computes_less):
            start = clock()
            function()
            spent[function.__name__] += clock() - start


main(int(sys.argv[1]))
for name, ns in spent.items():
    print(name, ns, file=sys.stderr)
