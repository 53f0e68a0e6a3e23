#!/usr/bin/env python3
"""Files of other tools through `lwp fleet add`, and lwp's exports through other tools.

    tests/foreign/formats.py [-k] [NAME]...

    -k       keep the directory with the files
    NAME     cases whose names contain this (default: all)

LWP_BIN and LWP_FLEET_BIN name the commands (default: those of the release build beside this folder). Each file is made
here by the tool itself; a case whose tool is not installed is skipped, and says so. Sums are those that the tool itself
gives: none may be lost or counted twice. With --network, cases that fetch packages run too (JMH by Maven). Ends with 1
if a case fails.
"""
import argparse
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 600

CALLS = r"""
#include <cstdio>
#include <cstdlib>
namespace { __attribute__((noinline)) long hidden(long n) { volatile long s = 0; while (n) s += n--; return s; } }
template <class T> struct Box { __attribute__((noinline)) T twice(T n) { return hidden(n) * 2; } };
__attribute__((noinline)) long cheap() { return hidden(10); }
__attribute__((noinline)) long dear() { return Box<long>().twice(300000); }
int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main() {
  int all[100];
  for (int i = 0; i < 100; i++) all[i] = i * 7919 % 100;
  qsort(all, 100, sizeof *all, compare);
  return cheap() + dear() == all[3];
}
"""

BUSY = r"""
volatile long s;
__attribute__((noinline)) void leaf(long n) { for (long i = 0; i < n; i++) s += i; }
__attribute__((noinline)) void middle(long n) { leaf(n); s++; }
int main(void) { for (int i = 0; i < 3000; i++) middle(60000); return 0; }
"""

GO_TEST = """package work
import "testing"
var sink int
func warmup(n int) int { s := 0; for i := 0; i < n; i++ { s += i ^ n }; return s }
func BenchmarkWarmup(b *testing.B) { b.ReportAllocs(); for i := 0; i < b.N; i++ { sink += warmup(1000) } }
func BenchmarkParts(b *testing.B) {
	for _, n := range []string{"a=1", "b/c"} { b.Run(n, func(b *testing.B) {
		for i := 0; i < b.N; i++ { sink += warmup(100) }
		b.ReportMetric(1.5, "widgets/op") }) }
}
"""

GOOGLE = r"""
#include <benchmark/benchmark.h>
static void sum(benchmark::State &state) {
  for (auto _ : state) { long s = 0; for (long i = 0; i < state.range(0); i++) benchmark::DoNotOptimize(s += i); }
}
BENCHMARK(sum)->Arg(10)->Arg(1000);
BENCHMARK_MAIN();
"""

PYTEST = """
def test_sorting(benchmark): benchmark(sorted, list(range(100)))
def test_summing(benchmark): benchmark(sum, range(100))
"""

JMH = """package app;
public class Sums {
  @org.openjdk.jmh.annotations.Benchmark
  public long sum() { long s = 0; for (int i = 0; i < 1000; i++) s += i ^ s; return s; }
}
"""


class Skipped(Exception):
    """A tool is missing."""


class Failed(Exception):
    """A file was read wrongly."""


def expect(condition, text):
    """Fails unless the condition holds."""
    if not condition:
        raise Failed(text)


def needs(*tools):
    """Skips the case unless all of these are installed."""
    for tool in tools:
        if not shutil.which(tool):
            raise Skipped(f"no {tool}")


def write(path, text):
    """A file with this text."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    """The text of a file."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Case:
    """A directory to work in, and the commands under test."""

    def __init__(self, place, commands):
        self.place = place
        self.lwp, self.fleet = commands
        self.stores = 0

    def path(self, name):
        """A file of the case."""
        return os.path.join(self.place, name)

    def run(self, *command, fails=False, **more):
        """What a command prints."""
        done = subprocess.run(command, cwd=self.place, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        said = done.stderr.decode(errors="replace")
        expect(fails or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{said[-2000:]}")
        return done.stdout.decode(errors="replace")

    def compile(self, text, program, compiler="gcc", *flags):
        """A program from its source."""
        needs(compiler)
        source = program + (".c" if compiler == "gcc" else ".cc")
        write(self.path(source), text)
        self.run(compiler, "-O1", "-g", "-o", program, source, *flags)

    def add(self, *files):
        """A new store with these files: rows of one question after the other."""
        self.stores += 1
        store = self.path(f"store{self.stores}")
        self.run(self.fleet, "init", "--store", store)
        self.run(self.fleet, "add", "--store", store, *files)

        def ask(question):
            answer = self.run(self.fleet, "sql", "--store", store, "--format", "csv", question)
            return list(csv.reader(io.StringIO(answer)))[1:]
        return ask

    def functions(self, *files):
        """Own counts by function and event."""
        ask = self.add(*files)
        rows = ask("SELECT function, event, value FROM functions WHERE event IS NOT NULL")
        counts = {}
        for function, event, value in rows:
            key = (event, function)
            counts[key] = counts.get(key, 0) + int(float(value))
        return counts

    def benchmarks(self, *files):
        """The benchmarks of a file with the events that they have."""
        rows = self.add(*files)("SELECT benchmark, event, value FROM recording_values")
        found = {}
        for name, event, value in rows:
            found.setdefault(name, {})[event] = float(value)
        return found


def total(counts, event):
    """The sum of an event."""
    return sum(value for (name, _), value in counts.items() if name == event)


def callgrind(case):
    """valgrind's own files, however its options make them."""
    needs("valgrind")
    case.compile(CALLS, "calls", "g++")
    variants = {
        "plain": ["--compress-strings=no", "--compress-pos=no"],
        "packed": [],
        "instructions": ["--dump-instr=yes", "--collect-jumps=yes"],
        "caches": ["--cache-sim=yes", "--branch-sim=yes", "--compress-strings=no"],
        "recursion": ["--separate-recs=2", "--separate-callers=2"],
        "lines": ["--dump-line=no"],
        "parts": ["--dump-every-bb=20000", "--combine-dumps=yes"],
    }
    for name, options in variants.items():
        file = f"callgrind.out.{name}"
        case.run("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={file}", *options, "./calls", fails=True)
        text = read(case.path(file))
        # The file of parts has a line for each of them.
        totals = [int(line.split()[1]) for line in text.splitlines() if line.startswith(("totals:", "summary:"))]
        sums = totals if name == "parts" else totals[-1:]
        counts = case.functions(file)
        kept = total(counts, "Ir")
        expect(kept in (sum(sums), sum(sums) // 2), f"{name}: {kept} of {sums}")
        names = {function for _, function in counts}
        if name in ("plain", "packed"):
            expect("(below main)" in names, f"{name}: no (below main)")
            hidden = [it for it in names if "hidden" in it]
            expect(hidden == ["(anonymous namespace)::hidden(long)"], f"{name}: {hidden}")


def perf_script(case):
    """What `perf script` prints, with various fields."""
    needs("perf")
    os.mkdir(case.path("a (1)"))
    case.compile(BUSY, "busy")
    shutil.move(case.path("busy"), case.path("a (1)/busy"))
    case.run("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "500", "-g", "-o", "p.data", "a (1)/busy")
    variants = {
        "default": [],
        "header": ["--header"],
        "no_time": ["-F", "comm,pid,tid,event,ip,sym,dso"],
        "no_event": ["-F", "comm,tid,time,ip,sym,dso"],
        "bare": ["-F", "comm,tid,ip,sym,dso"],
        "lines": ["-F", "+srcline"],
        "offsets": ["-F", "comm,tid,time,period,event,ip,sym,symoff,dso"],
        "no_stacks": ["-G"],
        "names_only": ["-F", "comm,tid,time,event,ip,sym"],
    }
    faults = []
    for name, options in variants.items():
        try:
            perf_fields(case, name, options)
        except Failed as fault:
            faults.append(str(fault))
    expect(not faults, "; ".join(faults))


def perf_fields(case, name, options):
    """One way to print samples."""
    text = case.run("perf", "script", "-i", "p.data", *options)
    write(case.path(f"{name}.script"), text)
    counts = case.functions(f"{name}.script")
    samples = len(re.findall(r"^ *busy +\d", text, re.MULTILINE))
    expect(samples > 20, f"{name}: {samples} samples")
    events = {event for event, _ in counts}
    expect(len(events) == 1, f"{name}: {events}")
    names = {function for _, function in counts}
    expect("leaf" in names, f"{name}: {sorted(names)[:20]}")
    expect(not any("busy.c" in it or "(1)" in it for it in names), f"{name}: {sorted(names)[:20]}")
    periods = re.findall(r"^ *busy .*?:\s+(\d+) cpu-clock", text, re.MULTILINE)
    want = sum(map(int, periods)) if periods else samples
    expect(total(counts, events.pop()) == want, f"{name}: {counts} of {want}")


def tracepoints(case):
    """Samples of kernel tracepoints, whose heads have fields behind the event."""
    needs("perf")
    case.compile(BUSY, "busy")
    said = case.run("perf", "record", "-q", "-e", "sched:sched_switch", "-g", "-o", "t.data", "sleep", "0.1", fails=True)
    if not os.path.exists(case.path("t.data")):
        raise Skipped(f"no tracepoints {said}")
    text = case.run("perf", "script", "-i", "t.data")
    write(case.path("t.script"), text)
    counts = case.functions("t.script")
    samples = text.count("sched:sched_switch:")
    expect(samples and total(counts, "sched:sched_switch") == samples, f"{counts}")
    expect(not any("prev_" in name for _, name in counts), f"{counts}")


def go(case):
    """Go's benchmark lines and profiles; Go reads lwp's."""
    needs("go")
    write(case.path("go.mod"), "module work\n\ngo 1.18\n")
    write(case.path("w_test.go"), GO_TEST)
    cache = {**os.environ, "GOCACHE": case.path("cache"), "GOFLAGS": "-mod=mod"}
    text = case.run("go", "test", "-bench", ".", "-count", "2", "-benchtime", "20000x", "-cpuprofile", "cpu.prof",
                    "-memprofile", "mem.prof", env=cache)
    write(case.path("bench.txt"), text)
    found = case.benchmarks("bench.txt")
    want = {f"work.Benchmark{name}" for name in ("Warmup", "Parts/a=1", "Parts/b/c")}
    expect(set(found) == want, f"{sorted(found)}")
    widgets = [events for name, events in found.items() if "b/c" in name]
    expect(any("widgets" in event for event in widgets[0]), f"{widgets}")
    for name in ("cpu.prof", "mem.prof"):
        raw = case.run("go", "tool", "pprof", "-raw", name, env=cache)
        rows = raw.split("Samples:\n")[1].split("Locations\n")[0].splitlines()
        kinds = [kind.split("/")[0] for kind in rows[0].replace("[dflt]", "").split()]
        values = [list(map(int, row.split(":")[0].split())) for row in rows[1:] if re.match(r"\s+\d+", row)]
        counts = case.functions(name)
        for at, kind in enumerate(kinds):
            want = sum(row[at] for row in values)
            events = {event for event, _ in counts}
            match = [event for event in events if event in (kind, *(f"{kind}{unit}" for unit in ("-nanoseconds", "-bytes", "-count")))]
            expect(not want or match, f"{name}: {kind} of {events}")
            expect(not want or total(counts, match[0]) == want, f"{name} {kind}: {total(counts, match[0])} of {want}")


def hyperfine(case):
    """hyperfine's JSON."""
    needs("hyperfine")
    case.run("hyperfine", "-N", "-w", "1", "-r", "5", "--export-json", "h.json", "-n", "a name", "true", "echo 1 2")
    document = json.loads(read(case.path("h.json")))
    found = case.benchmarks("h.json")
    expect(set(found) == {"a name", "echo 1 2"}, f"{found}")
    for result in document["results"]:
        kept, want = found[result["command"]]["wall-time-ps"], result["median"] * 1e12
        expect(abs(kept - want) <= 1e-6 * want, f"{result['command']}: {kept} of {want}")


def pytest_benchmark(case):
    """pytest-benchmark's JSON."""
    needs("pytest")
    write(case.path("test_all.py"), PYTEST)
    try:
        case.run("pytest", "-q", "--benchmark-json=b.json", "--benchmark-max-time=0.1", "test_all.py")
    except Failed as error:
        if "benchmark-json" in str(error):
            raise Skipped("no pytest-benchmark") from error
        raise
    found = case.benchmarks("b.json")
    expect(len(found) == 2 and all(any(word in name for name in found) for word in ("sorting", "summing")), f"{found}")


def google_benchmark(case):
    """Google Benchmark's JSON, with repetitions and aggregates."""
    case.compile(GOOGLE, "bench", "g++", "-lbenchmark", "-lpthread")
    case.run("./bench", "--benchmark_out=g.json", "--benchmark_out_format=json", "--benchmark_repetitions=3",
             "--benchmark_min_time=0.01")
    found = case.benchmarks("g.json")
    expect({name.split("_")[0] for name in found} == {"sum/10", "sum/1000"}, f"{found}")


def jmh(case):
    """JMH's JSON; Maven fetches it."""
    needs("mvn", "java")
    if not case.network:
        raise Skipped("without --network")
    case.run("mvn", "-q", "-B", "archetype:generate", "-DinteractiveMode=false",
             "-DarchetypeGroupId=org.openjdk.jmh", "-DarchetypeArtifactId=jmh-java-benchmark-archetype",
             "-DarchetypeVersion=1.37", "-DgroupId=app", "-DartifactId=sums", "-Dversion=1", fails=True)
    if not os.path.exists(case.path("sums/pom.xml")):
        raise Skipped("Maven cannot fetch JMH")
    sources = case.path("sums/src/main/java/app")
    shutil.rmtree(sources)
    os.makedirs(sources)
    write(os.path.join(sources, "Sums.java"), JMH)
    case.run("mvn", "-q", "-B", "-f", "sums", "package")
    case.run("java", "-jar", "sums/target/benchmarks.jar", "-f", "1", "-wi", "1", "-i", "2", "-w", "1", "-r", "1",
             "-rf", "json", "-rff", "j.json")
    found = case.benchmarks("j.json")
    expect(len(found) == 1 and "Sums.sum" in list(found)[0], f"{found}")


def exports(case):
    """lwp's own exports through other tools, and back."""
    case.compile(CALLS, "calls", "g++")
    for name, options in (("exact", []), ("sampled", ["-c", "1000"])):
        data = f"{name}.data"
        case.run(case.lwp, "record", "-q", "-o", data, *options, "--", "./calls", fails=True)
        report = json.loads(case.run(case.lwp, "report", "-i", data, "--json"))
        want = sum(int(row["self"]) for row in report["rows"])
        export = lambda form, file, data=data: case.run(case.lwp, "export", "-i", data, "-f", form, "-o", file)
        for form, file in (("callgrind", "callgrind.out.x"), ("pprof", "x.pb.gz"), ("folded", "x.folded"),
                           ("perf", "perf.data"), ("speedscope", "x.speedscope.json"), ("chrome", "x.json"),
                           ("firefox", "x.profile.json"), ("otlp", "x.otlp"), ("jsonl", "x.jsonl")):
            export(form, f"{name}.{file}")
        for file in ("callgrind.out.x", "pb.gz", "folded", "otlp"):
            file = f"{name}.{file}" if file.startswith("callgrind") else f"{name}.x.{file}"
            counts = case.functions(file)
            events = {event for event, _ in counts}
            event = next((it for it in ("Ir", "instructions") if it in events), min(events, default=""))
            expect(total(counts, event) == want, f"{file}: {total(counts, event)} of {want}, {events}")
            expect(any("hidden" in function for _, function in counts), file)
        if shutil.which("callgrind_annotate"):
            text = case.run("callgrind_annotate", f"{name}.callgrind.out.x")
            sums = re.search(r"^\s*([\d,]+).*PROGRAM TOTALS", text, re.MULTILINE)
            expect(sums and int(sums[1].replace(",", "")) == want, f"{name}: {sums and sums[1]} of {want}")
            shares = [float(share) for share in re.findall(r"\(\s*([\d.]+)%\)", text)]
            expect(max(shares) <= 100, f"{name}: {max(shares)} %")
        if shutil.which("go"):
            raw = case.run("go", "tool", "pprof", "-raw", "-sample_index=instructions", f"{name}.x.pb.gz")
            expect("hidden" in raw, "names in pprof")
        if shutil.which("perf"):
            text = case.run("perf", "script", "-i", f"{name}.perf.data", "-F", "comm,tid,time,period,event,ip,sym")
            periods = sum(map(int, re.findall(r":\s+(\d+)\s+instructions", text)))
            expect(periods == want, f"{name}: perf sees {periods} of {want}")
            write(case.path(f"{name}.script"), text)
            counts = case.functions(f"{name}.script")
            back = sum(count for (event, _), count in counts.items() if event.startswith("instructions"))
            expect(back == want, f"{name}: back from perf {back} of {want}")


def perf_in_place(case):
    """`lwp perf script` in place of perf's, for stackcollapse (inferno's port of it, where that is installed)."""
    case.compile(BUSY, "busy name")
    case.run(case.lwp, "perf", "record", "-q", "-c", "1000003", "./busy name")
    text = case.run(case.lwp, "perf", "script")
    write(case.path("x.script"), text)
    counts = case.functions("x.script")
    samples = text.count("instructions:u:")
    expect(samples > 100 and sum(counts.values()) == samples * 1000003, f"{samples}: {counts}")
    head = re.compile(r"^(\S.+?)\s+(\d+)/*(\d+)*\s+")
    heads = [line for line in text.splitlines() if line and not line[0].isspace()]
    expect(all(head.match(line) and head.match(line)[1] == "busy name" for line in heads), heads[:1])
    if shutil.which("inferno-collapse-perf"):
        folded = case.run("inferno-collapse-perf", "x.script")
        sums = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())
        expect(sums == samples * 1000003 and "middle;leaf" in folded, f"{sums} of {samples}: {folded[:300]}")


CASES = [callgrind, perf_script, tracepoints, go, hyperfine, pytest_benchmark, google_benchmark, jmh, exports,
         perf_in_place]


def main():
    """All cases, with a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", "--keep", action="store_true")
    parser.add_argument("--network", action="store_true", help="fetch what is missing")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    commands = (os.environ.get("LWP_BIN", f"{ROOT}/target/release/lwp"),
                os.environ.get("LWP_FLEET_BIN", f"{ROOT}/fleet/target/release/lwp-fleet"))
    for command in commands:
        if not os.access(command, os.X_OK):
            sys.exit(f"formats.py: no {command}: build it, or name it in LWP_BIN or LWP_FLEET_BIN")
    place = tempfile.mkdtemp(prefix="lwp-formats-")
    failed = 0
    for run in CASES:
        if given.names and not any(name in run.__name__ for name in given.names):
            continue
        case = Case(os.path.join(place, run.__name__), [os.path.abspath(command) for command in commands])
        case.network = given.network
        os.mkdir(case.place)
        try:
            run(case)
            print(f"ok       {run.__name__}")
        except Skipped as reason:
            print(f"skipped  {run.__name__}: {reason}")
        except (Failed, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED   {run.__name__}: {error}")
        sys.stdout.flush()
    if given.keep:
        print(f"files are in {place}")
    else:
        shutil.rmtree(place)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
