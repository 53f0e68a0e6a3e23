# Calls the rounds of numbers.wat, which lies beside it. Prints a sum, and the microseconds of the
# second half of the rounds.
import pathlib
import time

import wasmtime

ROUNDS = 16

store = wasmtime.Store(wasmtime.Engine())
text = pathlib.Path(__file__).with_name("numbers.wat").read_text()
module = wasmtime.Module(store.engine, text)
round_of = wasmtime.Instance(store, module, []).exports(store)["round"]
total, begun = 0, 0
for number in range(ROUNDS):
    if number == ROUNDS // 2:
        begun = time.perf_counter_ns()
    total = (total * 31 + round_of(store, number)) & 0xFFFFFF
print(total)
print((time.perf_counter_ns() - begun) // 1000)
