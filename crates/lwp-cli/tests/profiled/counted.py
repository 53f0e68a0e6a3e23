def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def leaf(x):
    return x * x


def middle(n):
    return sum(leaf(i) for i in range(n))


print(fib(10), middle(77))
