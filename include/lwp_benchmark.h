/* Instructions as a counter of Google Benchmark's. C++11; needs <benchmark/benchmark.h>, and nothing to link with beside
 * that library.
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
 * Under `lwp stat` the benchmark has a counter `instructions`: those of an iteration, the loop included. Where nothing is
 * counted it has none. The number of iterations is best given: the library otherwise chooses it by time.
 *
 * Licence: MIT OR Apache-2.0. */
#ifndef LWP_BENCHMARK_H
#define LWP_BENCHMARK_H

#include "lwp_count.h"

#include <benchmark/benchmark.h>

namespace lwp {

/* Counts from its construction to its destruction, in the thread that runs the benchmark. */
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
