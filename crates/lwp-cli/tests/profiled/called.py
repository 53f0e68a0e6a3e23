"""Calls of functions, under signals, in threads, in a child, and of code that does not last.

With an argument, Python itself counts the calls and prints them.
"""
import collections
import os
import signal
import sys
import threading

# Threads may append to a list at once, but not add to a count.
calls = []
ticks = []


def note(frame, event, _):
    code = frame.f_code
    if event == "call" and (code.co_filename == __file__ or code.co_filename == "<made>"):
        calls.append(code.co_name)


def tick(*_):
    ticks.append(1)


def leaf(number):
    return number + 1


def deep(number):
    return 0 if number == 0 else 1 + deep(number - 1)


def each(number):
    for at in range(number):
        yield at


class Thing:
    def __init__(self, value):
        self.value = value

    @property
    def half(self):
        return self.value // 2

    def __getitem__(self, at):
        return at

    def __add__(self, other):
        return self


def work(number):
    total = 0
    thing = Thing(number)
    for at in range(number):
        total = leaf(total)
        if at % 50 == 0:
            deep(20)
            thing.half
            thing[at]
            thing + thing
            total += sum(map(lambda it: it, each(3)))
            # Another code object, which soon lies where this one did.
            source = "def made{0}(): pass\nfor _ in range({0}): made{0}()".format(at // 50 % 7)
            exec(compile(source, "<made>", "exec"), {})
    return total


def forked():
    pass


def main():
    child = os.fork()
    if child == 0:
        for _ in range(50):
            forked()
        os._exit(0)
    os.waitpid(child, 0)
    threads = [threading.Thread(target=work, args=(500 * at,)) for at in range(1, 4)]
    for thread in threads:
        thread.start()
    work(5000)
    for thread in threads:
        thread.join()
    sorted(range(30), key=leaf)


signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
if len(sys.argv) > 1:
    sys.setprofile(note)
    threading.setprofile(note)
main()
sys.setprofile(None)
signal.setitimer(signal.ITIMER_REAL, 0)
if len(sys.argv) > 1:
    counts = collections.Counter(calls)
    del counts["tick"]
    for name, times in counts.items():
        print(name, times)
