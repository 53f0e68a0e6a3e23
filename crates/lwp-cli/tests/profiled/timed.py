import os
import signal
import sys
import threading
import time

clock = time.thread_time_ns
spent = {}


def spin(n):
    total = 0
    for i in range(n):
        total += i & 7
    return total


def heavy():
    spin(7000)


def light():
    spin(3000)


def beside():
    spin(5000)


def in_child():
    spin(5000)


def rest():
    time.sleep(0.02)


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


def repeat(seconds, *functions):
    end = clock() + int(seconds * 1e9)
    while clock() < end:
        for function in functions:
            start = clock()
            function()
            name = function.__name__
            spent[name] = spent.get(name, 0) + clock() - start


def signals(seconds):
    came = []
    signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    repeat(seconds, heavy, light)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for _ in range(100):
        os.kill(os.getpid(), signal.SIGUSR1)
    print("alarms", len(came) > 10, file=sys.stderr)


def main(seconds, mode):
    if mode == "t":
        thread = threading.Thread(target=repeat, args=(seconds, beside))
        thread.start()
        repeat(seconds, heavy, light)
        thread.join()
    elif mode == "f":
        pid = os.fork()
        repeat(seconds, *([heavy, light] if pid else [in_child]))
        if pid == 0:
            print("in_child", spent["in_child"], flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    elif mode == "s":
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signals(seconds)
    elif mode == "z":
        start = time.monotonic_ns()
        for _ in range(int(50 * seconds)):
            rest()
        print("rest", time.monotonic_ns() - start)
    elif mode == "d":
        for _ in range(int(100 * seconds)):
            deep(sys.getrecursionlimit() - 60)
        for limit in (1000, 6000):
            sys.setrecursionlimit(limit)
            depth = 0
            try:
                while True:
                    depth += 100
                    deep(depth)
            except RecursionError:
                print("depth", depth)
    else:
        repeat(seconds, heavy, light)
    for name, ns in spent.items():
        print(name, ns)


if len(sys.argv) > 3:
    with open(sys.argv[3], "w") as begun:
        begun.write(f"{os.getpid()}\n")
main(float(sys.argv[1]), sys.argv[2])
