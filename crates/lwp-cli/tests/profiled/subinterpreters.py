import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
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

def NAME():
    for _ in range(20):
        light(3000)
        heavy(3000)

NAME()
"""


def alone(n):
    total = 0
    for i in range(n):
        total += i & 7
    return total


def execute(interpreter, name):
    interpreters.run_string(interpreter, CODE.replace("NAME", name))


def nested():
    alone(60000)
    execute(interpreters.create(), "within")
    alone(60000)


def threaded(interpreter):
    alone(60000)
    # To 3.11 an interpreter that another thread has made may wait forever.
    execute(interpreters.create() if interpreter is None else interpreter, "beside")


def main():
    made_before = sys.version_info >= (3, 12)
    thread = threading.Thread(
        target=threaded, args=(interpreters.create() if made_before else None,)
    )
    thread.start()
    nested()
    thread.join()


main()
