/* A Google Benchmark counter for instructions. Needs C++11 and <benchmark/benchmark.h>; apart from that library, there is
 * nothing to link with.
 *
 *     #include <lwp_benchmark.h>
 *
 *     static void sorting(benchmark::State &state)
 *     {
 *         lwp::CountInstructions counted(state);
 *         for (auto _ : state)
 *             sort();
 *     }
 *     BENCHMARK(sorting)->Iterations(100);
 *
 * Under `lwp stat`, the benchmark has a counter `instructions`: the instructions of an iteration, including the loop's own.
 * Elsewhere it has none. Set the number of iterations, because otherwise the library chooses it by time.
 *
 * Licence: MIT OR Apache-2.0. */
#ifndef LWP_BENCHMARK_H
#define LWP_BENCHMARK_H

#include "lwp_count.h"

#include <benchmark/benchmark.h>

namespace lwp {

/* Counts the instructions of the thread that runs the benchmark, from construction to destruction. */
class CountInstructions {
public:
    explicit CountInstructions(benchmark::State &state) : state_(state), before_(0)
    {
        counts_ = lwp_count_read(LWP_COUNT_INSTRUCTIONS, &before_) != 0;
    }

    ~CountInstructions()
    {
        uint64_t after = 0;
        if (lwp_count_read(LWP_COUNT_INSTRUCTIONS, &after) != 0 && counts_)
            state_.counters["instructions"] = benchmark::Counter(
                static_cast<double>(after - before_), benchmark::Counter::kAvgIterations);
    }

    CountInstructions(const CountInstructions &) = delete;
    CountInstructions &operator=(const CountInstructions &) = delete;

private:
    benchmark::State &state_;
    uint64_t before_;
    bool counts_;
};

} // namespace lwp

#endif
