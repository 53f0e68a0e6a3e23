#!/usr/bin/env python3
"""Tries lwp's endurance: killed hosts, damaged caches, many runs on one cache, and half an hour of code that changes.

    tests/foreign/soak.py [--kills N] [--corruptions N] [--runs N] [--minutes N] [--seed N] [--keep DIR] [PART]...

PART is kills, corruptions, soak or churn; default: all. `--short` stands for 5 kills, 10 corruptions, 20 runs and a minute.

kills        A tree of processes runs under lwp, whose host is killed (SIGKILL) 5 to 400 ms after its start. Within
             5 s no process of the run is left, and the next run on the same cache does as natively.
corruptions  Files of a warm cache are damaged. Programs print, end and count as with `--no-cache`.
soak         Runs of a mix of programs, two at a time, on one cache, by `lwp run`, `lwp stat` and `lwp record`, print and
             end as natively. Counts under --deterministic are those of the first run.
churn        A JVM that loads, compiles and drops classes, and a node that does so with functions, run under `lwp stat` for
             so many minutes at once, and are right to the end. From ten minutes on, the largest resident memory of the host
             in the last two fifths of the time is at most 5 % more than in the two before.

LWP, or LWP_BIN, names the lwp to test (default: target/release/lwp above this folder). A program that is not installed
is left out with a message. Prints a line a part, and ends with 1 if anything failed: how is printed, and kept in DIR
(default: a new folder of the temporary directory).
"""

import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

EVENTS = "instructions,branches,calls"
PYTHON = os.path.realpath(sys.executable)
# The run is given up after so many seconds. Natively, none of the programs takes one.
LIMIT = 120
PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h

THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *work(void *n) { volatile long s = 0; for (long i = 0; i < 20000; i++) s += i ^ (long)n; return (void *)s; }
int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : -1, sum = 0;
    for (long r = 0; r != rounds; r++) {
        pthread_t all[8]; void *result;
        for (long i = 0; i < 8; i++) if (pthread_create(&all[i], 0, work, (void *)i)) return 1;
        for (long i = 0; i < 8; i++) { pthread_join(all[i], &result); sum += (long)result; }
    }
    printf("%ld\n", sum);
}
"""

MAKEFILE = """
all: a b c d
a b c d: ; @while :; do sh -c 'expr 1 + 1; (true; true) | cat' >/dev/null; done
"""

POOL = """
import multiprocessing
def work(n): return sum(i * i % 7 for i in range(n))
if __name__ == '__main__':
    multiprocessing.set_start_method('fork')
    while True:
        with multiprocessing.Pool(3) as pool: pool.map(work, range(1000, 1030))
"""

SESSIONS = """
for i in 1 2 3; do setsid sh -c 'while :; do sh -c "true | true"; done' & done
(setsid sh -c 'while :; do :; done' &)
wait
"""

SOURCE = """
#include <stdio.h>
struct pair { int a; double b; };
static double sum(const struct pair *p, int n) { double s = 0; for (int i = 0; i < n; i++) s += p[i].a * p[i].b; return s; }
int main(void) { struct pair p[3] = {{1, 2}, {3, 4}, {5, 6}}; printf("%f\\n", sum(p, 3)); return 0; }
"""


class Program:
    """A command, and whether its counts under --deterministic are the same in every run.

    They are not with threads, nor where a shell waits for children that run at the same time, as it takes the one that
    ends first first, nor where SIGCHLD interrupts it at any moment, as bash.
    """

    def __init__(self, *command, repeats=True):
        self.command = list(command)
        self.repeats = repeats


class Soak:
    """A folder with the programs' files, the environment of every run, and the failures so far."""

    def __init__(self, options):
        self.options = options
        self.lwp = find_lwp()
        self.keep = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="soak-failures."))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="soak."))
        self.failures, self.uncompared, self.expected = 0, 0, {}
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.work), "LC_ALL": "C", "TZ": "UTC"}
        self.write_files()

    def write_files(self):
        for name, text in [("threads.c", THREADS), ("Makefile", MAKEFILE), ("pool.py", POOL),
                           ("sessions.sh", SESSIONS), ("small.c", SOURCE)]:
            (self.work / name).write_text(text)
        rows = random.Random(1)
        lines = [f"{rows.randrange(10**6)} {rows.choice(['ab', 'cd', 'ef'])} {i}\n" for i in range(5000)]
        (self.work / "lines").write_text("".join(lines))
        compiler = shutil.which("cc") or shutil.which("gcc")
        self.threads = self.work / "threads" if compiler else None
        if compiler:
            subprocess.run([compiler, "-O1", "-pthread", "-o", self.threads, self.work / "threads.c"],
                           check=True, timeout=LIMIT)
        else:
            print("soak: no C compiler: no program with threads")

    def command(self, mode, program, cache, counts):
        """The words that run a program: natively, by `lwp run`, or counted or recorded in the file."""
        words = {
            "native": [],
            "run": [self.lwp, "run"],
            "stat": [self.lwp, "stat", "-j", "-e", EVENTS, "-o", counts],
            "deterministic": [self.lwp, "stat", "--deterministic", "--env", "TMPDIR=.", "-j", "-e", EVENTS,
                              "-o", counts],
            "record": [self.lwp, "record", "-q", "--no-progress", "-o", counts],
        }[mode]
        if mode != "native":
            words = words + (["--cache-dir", cache] if cache else ["--no-cache"]) + ["--"]
        return [str(word) for word in words] + program.command

    def run(self, mode, program, cache, cwd, tries=5):
        """What a run prints, how it ends, and what it counts.

        A counted run during which the numbers of processes began anew or got another digit is repeated.
        """
        counts = written(cwd)
        counts.unlink(missing_ok=True)
        words = self.command(mode, program, cache, counts)
        env = self.env | {"TMPDIR": "."}
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, cwd=cwd, env=env, start_new_session=True)
        try:
            out, err = started.communicate(timeout=LIMIT)
            status = started.returncode
        except subprocess.TimeoutExpired:
            (self.keep / f"hung.{started.pid}").write_text(states(tree(started.pid)))
            os.killpg(started.pid, signal.SIGKILL)
            out, err = started.communicate()
            status = f"not ended after {LIMIT} s"
        digits = len(str(started.pid)) if started.pid <= last_process() else None
        if digits != len(str(last_process())) and mode == "deterministic" and tries:
            return self.run(mode, program, cache, cwd, tries - 1)
        result = Result(out, err, status, None, words, digits)
        if mode in ("stat", "deterministic"):
            result = result._replace(counts=read_counts(counts))
        return result

    def counted(self, program, cwd, digits):
        """The run without a cache that a run is held against whose processes had numbers of so many digits.

        None where there is none, as the numbers have begun anew since: that run's counts are not compared.
        """
        key = tuple(program.command), digits
        for _ in range(5):
            if key in self.expected:
                break
            result = self.run("deterministic", program, None, cwd)
            self.expected.setdefault((key[0], result.digits), result)
        if key not in self.expected:
            self.uncompared += 1
        return self.expected.get(key)

    def fail(self, label, *, results=(), files=(), text=""):
        """Prints a failure, and keeps what belongs to it."""
        self.failures += 1
        place = self.keep / label.replace(" ", "-").replace("/", "_")
        place.mkdir(parents=True, exist_ok=True)
        print(f"soak: failed: {label}: {text.splitlines()[0]}; kept in {place}", flush=True)
        (place / "text").write_text(text + "\n")
        for name, result in results:
            (place / f"{name}.out").write_bytes(result.out)
            (place / f"{name}.err").write_bytes(result.err)
            (place / f"{name}.txt").write_text(f"{result.words}\n{result.status}\n{result.counts}\n")
        for file in files:
            if file.is_dir():
                copy(file, place / file.name)
            elif file.exists():
                shutil.copy(file, place / file.name)

    def scratch(self, name):
        """An empty folder, which is a program's working directory: counts of programs that look at it depend on its name."""
        place = self.work / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place


# The digits are those of the numbers that the run's processes had: shells turn these into text, which takes instructions.
Result = collections.namedtuple("Result", "out err status counts words digits")


def written(cwd):
    """The file that lwp writes: not in the working directory, where a program may look."""
    return cwd.with_name(cwd.name + ".counts")


def last_process():
    """The number of the process that was made last."""
    return int(read("/proc/loadavg").split()[4])


def copy(folder, place):
    """Copies a cache, into which lwp may still be writing: files may vanish meanwhile."""
    try:
        shutil.copytree(folder, place, symlinks=True, ignore=no_pipes, dirs_exist_ok=True)
    except shutil.Error:
        pass


def find_lwp():
    above = pathlib.Path(__file__).resolve().parents[2]
    lwp = os.environ.get("LWP") or os.environ.get("LWP_BIN") or above / "target/release/lwp"
    if not os.access(lwp, os.X_OK):
        sys.exit(f"soak: no lwp at {lwp}; set LWP")
    return os.path.realpath(lwp)


def no_pipes(folder, names):
    """Files of a damaged cache that cannot be copied."""
    paths = [(name, os.path.join(folder, name)) for name in names]
    return [name for name, path in paths
            if not (os.path.islink(path) or os.path.isfile(path) or os.path.isdir(path))]


def read_counts(file):
    """The counts of `lwp stat -j` by event, or None without any."""
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return {row["event"]: row["counter-value"] for row in rows}
    except (OSError, ValueError, KeyError):
        return None


def difference(result, expected):
    """How a run differs from the expected one, in a few words, or nothing."""
    if result.status != expected.status:
        return f"ends with {result.status}, not {expected.status}: {result.err[-300:]!r}"
    if result.out != expected.out:
        return f"prints {result.out[:80]!r}, not {expected.out[:80]!r}"
    if b"panicked" in result.err:
        return f"panicked: {result.err[-300:]!r}"
    return ""


def miscounted(result, expected):
    """How counts differ from the expected ones, or nothing. No counts differ from any, and from no expected ones."""
    if result.counts is None or expected and result.counts != expected.counts:
        return f"counts {result.counts}, not {expected.counts}"
    return ""


# Processes

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark):
    """Living processes whose environment has the mark."""
    own = os.getpid()
    return [pid for pid in processes() if pid != own and mark in read(f"/proc/{pid}/environ")]


def parent(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def tree(root):
    """A process and all that descend from it."""
    parents = {pid: parent(pid) for pid in processes()}
    found = [root]
    for pid in found:
        found += [child for child, of in parents.items() if of == pid]
    return found


def states(pids):
    """What the kernel tells of processes, for whoever looks for the reason."""
    text = []
    for pid in pids:
        text.append(f"process {pid}: {read(f'/proc/{pid}/cmdline').replace(bytes(1), b' ').decode('latin-1')}")
        for thread in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
            wanted = (b"Name", b"State", b"PPid", b"TracerPid", b"Sig", b"Shd")
            lines = [line for line in read(thread / "status").splitlines() if line.startswith(wanted)]
            text += [b"; ".join(lines).decode("latin-1")]
            text += [f"{name}: {read(thread / name).decode('latin-1')}" for name in ("wchan", "syscall", "stack")]
    return "\n".join(text) + "\n"


def reap():
    """Collects children that have ended; whether there are others."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def gone(mark, seconds):
    """Waits until no process has the mark and no child is left; those that still are there."""
    end = time.monotonic() + seconds
    while True:
        children, left = reap(), marked(mark)
        if not children and not left:
            return []
        if time.monotonic() > end:
            return sorted(set(left) | set(tree(os.getpid())[1:]))
        time.sleep(0.02)


def adopt_orphans(on):
    """Processes whose parent was killed become children of this one, which then knows of each that is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def end_marked(mark):
    """Ends every process that has the mark, those that come about meanwhile too."""
    for _ in range(50):
        left = marked(mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not reap() and not left:
            return
        time.sleep(0.1)


# Kills

def trees(soak):
    """Trees of processes that never end by themselves, each with a program of the same kind that does."""
    bash = shutil.which("bash") or "/bin/sh"
    pipes = "while :; do seq 2000 | sort -rn | (read a; cat | wc -l); x=$(echo $(echo a | tr a b)); done"
    found = {
        "pipes": (Program(bash, "-c", pipes), Program(bash, "-c", "x=$(seq 300); echo ${#x}; (exit 3)", repeats=False)),
        "pool": (Program(PYTHON, soak.work / "pool.py"), Program(PYTHON, "-c", "print(sum(range(1000)))")),
    }
    if shutil.which("make"):
        found["make"] = (Program(shutil.which("make"), "-s", "-j2", "-f", soak.work / "Makefile"),
                         Program("/bin/sh", "-c", "expr 1 + 1; (true; exit 2)"))
    if soak.threads:
        found["threads"] = (Program(soak.threads), Program(soak.threads, "3", repeats=False))
    if shutil.which("setsid"):
        found["sessions"] = (Program("/bin/sh", soak.work / "sessions.sh"), Program("/bin/sh", "-c", "true | true; exit 4", repeats=False))
    for pair in found.values():
        for program in pair:
            program.command = [str(word) for word in program.command]
    return found


def kills(soak, count):
    adopt_orphans(1)
    found = trees(soak)
    cwd = soak.scratch("kill")
    native = {name: soak.run("native", pair[1], None, cwd) for name, pair in found.items()}
    cache, failed, ended, seen = soak.work / "kills-cache", 0, 0, 0
    for number in range(count):
        choice = random.Random(f"{soak.options.seed} kill {number}")
        name, mode = choice.choice(sorted(found)), choice.choice(["run", "stat", "deterministic"])
        if choice.random() < 0.2:
            shutil.rmtree(cache, ignore_errors=True)
        delay = choice.uniform(0.005, 0.4)
        before = soak.failures
        alive, members = kill_one(soak, number, (name, mode, delay), found[name][0], cache)
        ended, seen = ended + (not alive), seen + members
        after = soak.run(mode, found[name][1], cache, cwd)
        wrong = difference(after, native[name])
        if not wrong and mode == "deterministic" and found[name][1].repeats:
            wrong = miscounted(after, soak.counted(found[name][1], cwd, after.digits))
        if wrong:
            soak.fail(f"run after kill {number}", results=[("run", after), ("native", native[name])], files=[cache],
                      text=f"{name}, {mode}, killed after {delay * 1000:.0f} ms: {wrong}")
        failed += soak.failures > before
    adopt_orphans(0)
    print(f"soak: kills: {count - failed} of {count} left nothing and did no harm; {seen} processes ended with their hosts; "
          f"{ended} hosts had ended before", flush=True)


def kill_one(soak, number, choice, program, cache):
    """Kills one host. Whether it lived until then, and the number of its run's processes at that moment."""
    name, mode, delay = choice
    mark = f"LWP_SOAK_MARK={os.getpid()}.{number}"
    errors = soak.work / "kill.err"
    words = soak.command(mode, program, cache, soak.work / "kill.counts")
    if mode == "deterministic":
        at = words.index("--")
        words[at:at] = ["--env", mark]
    # The run before has perhaps left a process that writes the cache.
    if gone(mark.encode(), LIMIT):
        soak.fail(f"kill {number}", text=f"the run before has left a process\n{states(tree(os.getpid())[1:])}")
    with open(errors, "wb") as stderr:
        env = soak.env | dict([mark.split("=", 1)])
        host = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                                cwd=soak.work, env=env, start_new_session=True)
    time.sleep(delay)
    members = len(marked(mark.encode()))
    alive = host.poll() is None
    if alive:
        host.kill()
        host.wait()
    left = gone(mark.encode(), 5)
    if left or not alive:
        why = f"{len(left)} processes are left" if left else f"the host had ended by itself: {host.returncode}"
        text = f"{name}, {mode}, killed after {delay * 1000:.0f} ms: {why}\n{words}\n{states(left)}"
        soak.fail(f"kill {number}", files=[errors], text=text)
        end_marked(mark.encode())
    return alive, members


# Corruptions

def flip(choice, path, data):
    if data:
        for _ in range(choice.choice([1, 1, 8, 200])):
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
    path.write_bytes(data)


def flip_start(choice, path, data):
    if data:
        data[choice.randrange(min(len(data), 256))] = choice.randrange(256)
    path.write_bytes(data)


def cut(choice, path, data):
    path.write_bytes(data[:choice.choice([0, 1, choice.randrange(len(data) + 1), max(len(data) - 1, 0)])])


def overwrite(choice, path, data):
    at = choice.randrange(len(data) + 1)
    length = min(choice.choice([1, 8, 4096, 65536]), len(data) - at)
    data[at:at + length] = choice.choice([bytes(length), b"\xff" * length, choice.randbytes(length)])
    path.write_bytes(data)


def append(choice, path, data):
    path.write_bytes(data + choice.randbytes(choice.choice([1, 4096, 100000])))


def exchange(choice, path, data):
    other = choice.choice(sorted(path.parent.iterdir()))
    if other.is_file():
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)


def replace(choice, path, _data):
    path.unlink()
    kind = choice.choice(["folder", "pipe", "loop", "zeros", "nothing"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "nothing":
        path.symlink_to({"loop": path.name, "zeros": "/dev/zero"}[kind])


DAMAGES = [flip, flip, flip_start, cut, overwrite, append, exchange, replace]


def damage(choice, cache):
    """Damages one to three files of a cache; what was done."""
    done = []
    for _ in range(choice.choice([1, 1, 2, 3])):
        files = sorted(path for path in cache.rglob("*") if path.is_file() and not path.is_symlink())
        path, way = choice.choice(files), choice.choice(DAMAGES)
        way(choice, path, bytearray(path.read_bytes()))
        done.append(f"{way.__name__} {path.relative_to(cache)}")
    return ", ".join(done)


def settle(cache):
    """Waits until lwp has written a cache; whether there is one."""
    seen = None
    for _ in range(60):
        now = sorted((path.name, path.lstat().st_size) for path in cache.rglob("*"))
        if now == seen:
            break
        seen = now
        time.sleep(1)
    return seen


def corruptions(soak, count):
    programs = [Program("/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo $i; exit 3"),
                Program("gzip", "-9", "-c", str(soak.work / "lines")),
                Program(PYTHON, "-c", "print(sorted({i * 7 % 31: i for i in range(99)})); raise SystemExit(5)")]
    cwd, warm = soak.scratch("flip"), soak.work / "warm"
    native = [soak.run("native", program, None, cwd) for program in programs]
    for _ in range(3):
        for program, right in zip(programs, native):
            result = soak.run("deterministic", program, warm, cwd)
            wrong = difference(result, right) or miscounted(result, soak.counted(program, cwd, result.digits))
            if wrong:
                soak.fail("warm cache", results=[("run", result)], text=wrong)
    if not settle(warm):
        return soak.fail("warm cache", text=f"nothing is kept in {warm}")
    failed = 0
    for number in range(count):
        choice = random.Random(f"{soak.options.seed} corruption {number}")
        cache, kept = soak.work / f"flip-{number:05}", soak.work / "damaged"
        copy(warm, cache)
        done, which = damage(choice, cache), choice.randrange(len(programs))
        shutil.rmtree(kept, ignore_errors=True)
        copy(cache, kept)
        before = soak.failures
        # The second run finds what the first one made of the damage.
        for time_of in ("first", "second"):
            result = soak.run("deterministic", programs[which], cache, cwd)
            right = soak.counted(programs[which], cwd, result.digits)
            wrong = difference(result, native[which]) or miscounted(result, right)
            if wrong:
                soak.fail(f"corruption {number} {time_of} run", results=[("run", result), ("right", right or native[which])],
                          files=[kept], text=f"seed {soak.options.seed}: {done}: {wrong}")
        shutil.rmtree(cache, ignore_errors=True)
        failed += soak.failures > before
    files = sum(1 for path in warm.rglob("*") if path.is_file())
    print(f"soak: corruptions: {count - failed} of {count} changed nothing ({files} files in the cache); "
          f"{soak.uncompared} counts not compared", flush=True)


# Soak

def mix(soak):
    """Programs that end soon, by name; their files are in the folder of files."""
    lines, small = str(soak.work / "lines"), str(soak.work / "small.c")
    archive = f"tar -cf - -C {soak.work} lines small.c | tar -tf -"
    database = ("create table t(a, b); insert into t values (1, 'x'), (2, 'y'), (3, 'x');"
                " select b, sum(a) from t group by b order by b;")
    perl = "my %h; $h{$_ % 17} .= $_ for 1 .. 3000; print length $h{$_}, qq(\\n) for sort keys %h; exit 6"
    wanted = {
        "sh": Program("/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $((i * i)); done; exit 7"),
        "subshells": Program("/bin/sh", "-c", "x=$(echo a; (exit 2)); echo $x $?; (cat /dev/null; exit 4)"),
        "gzip": Program("gzip", "-c", lines),
        "gunzip": Program("/bin/sh", "-c", f"gzip -c {lines} | gzip -dc | cksum", repeats=False),
        "xz": Program("xz", "-1", "-T1", "-c", lines),
        "xz-threads": Program("xz", "-0", "-T2", "--block-size=20KiB", "-c", lines, repeats=False),
        "awk": Program("awk", "{ s[$2] += $1 } END { print s[\"ab\"], s[\"cd\"], s[\"ef\"] }", lines),
        "sed": Program("sed", "-n", "s/\\([0-9]*\\)7 \\(..\\)/\\2 \\1/p", lines),
        "python3": Program(PYTHON, "-c", "import json; print(json.dumps([i ** 3 for i in range(200)]))"),
        "python3-threads": Program(PYTHON, "-c", "import concurrent.futures as f; e = f.ThreadPoolExecutor(4);"
                                   " print(sum(e.map(lambda n: n * n, range(200))))", repeats=False),
        "perl": Program("perl", "-e", perl),
        "gcc": Program("/bin/sh", "-c", f"gcc -O2 -c -o small.o {small} && cksum < small.o"),
        "sqlite3": Program("sqlite3", ":memory:", database),
        "find": Program("/bin/sh", "-c", "find /usr/share/doc/base-files /etc/init.d | sort", repeats=False),
        "sort": Program("sort", "--parallel=1", "-k2,2", "-k1,1n", lines),
        "sort-threads": Program("sort", "--parallel=2", "-n", lines, repeats=False),
        "tar": Program("/bin/sh", "-c", archive, repeats=False),
        "git": Program("git", "hash-object", lines, small),
        "openssl": Program("openssl", "dgst", "-sha256", lines),
    }
    if soak.threads:
        wanted["threads"] = Program(str(soak.threads), "5", repeats=False)
    for name, program in list(wanted.items()):
        tool = name.split("-")[0]
        if tool in ("subshells", "gunzip", "threads") or shutil.which(tool):
            # The fixed PATH under --deterministic may not have it.
            program.command[0] = shutil.which(program.command[0]) or program.command[0]
        else:
            print(f"soak: no {tool}, which is left out")
            del wanted[name]
    return wanted


def soak_runs(soak, count):
    programs, cache = mix(soak), soak.work / "soak-cache"
    native = {name: soak.run("native", program, None, soak.scratch(f"run-{name}")) for name, program in programs.items()}
    alone = {name: threading.Lock() for name in programs}
    first, modes, tally = {}, ["run", "deterministic", "stat", "record"], collections.Counter()

    def one(number):
        name = sorted(programs)[number % len(programs)]
        # Each round over the programs takes another mode for each.
        mode = modes[(number % len(programs) + number // len(programs)) % len(modes)]
        with alone[name]:
            one_of(number, name, mode)

    def one_of(number, name, mode):
        cwd = soak.scratch(f"run-{name}")
        result = soak.run(mode, programs[name], cache, cwd)
        wrong = difference(result, native[name])
        if not wrong and result.err != native[name].err:
            wrong = f"says {result.err[-300:]!r}"
        if not wrong and mode == "stat" and result.counts is None:
            wrong = "no counts"
        if not wrong and mode == "deterministic" and programs[name].repeats:
            wrong = miscounted(result, first.setdefault((name, result.digits), result))
        if not wrong and mode == "record":
            report = subprocess.run([soak.lwp, "report", "-i", written(cwd)], capture_output=True, timeout=LIMIT)
            wrong = f"report: {report.stderr!r}" if report.returncode or not report.stdout else ""
        tally[mode, not wrong] += 1
        if wrong:
            soak.fail(f"run {number}", results=[("run", result), ("native", native[name])], files=[cwd, written(cwd)], text=f"{name}, {mode}: {wrong}")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(one, number) for number in range(count)]:
            future.result()
    right = sum(number for (_, fine), number in tally.items() if fine)
    by_mode = ", ".join(f"{mode} {tally[mode, True]} of {tally[mode, True] + tally[mode, False]}" for mode in modes)
    print(f"soak: soak: {right} of {count} as natively, {len(programs)} programs: {by_mode}", flush=True)


# Churn

def churns(soak):
    """Programs that make and drop code for so many seconds, by name."""
    here, found = pathlib.Path(__file__).resolve().parent, {}
    if shutil.which("java") and shutil.which("javac"):
        subprocess.run(["javac", "-d", soak.work, here / "Churn.java"], check=True, timeout=LIMIT)
        found["java"] = ["java", "-Xmx128m", "-cp", str(soak.work), "Churn"]
    if shutil.which("node"):
        found["node"] = ["node", "--max-old-space-size=64", str(here / "churn.js")]
    for name in {"java", "node"} - set(found):
        print(f"soak: no {name}, which is left out")
    return found


def host_memory(lwp, root):
    """The resident memory, in MiB, of processes of the run that execute lwp: its own, and that of the program's it maps."""
    pages = 0
    for pid in tree(root):
        try:
            if os.readlink(f"/proc/{pid}/exe").startswith(lwp):
                pages += int(read(f"/proc/{pid}/statm").split()[1])
        except (OSError, IndexError):
            pass
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def watched(soak, name, command, seconds):
    """What a program under lwp prints and counts, how it ends, and what its host's memory is, every five seconds."""
    counts, out, err = (soak.work / f"churn-{name}.{kind}" for kind in ("counts", "out", "err"))
    words = soak.command("stat", Program(*command, str(seconds)), soak.work / "churn-cache", counts)
    memory, end = [], time.monotonic() + seconds + LIMIT
    with open(out, "wb") as to, open(err, "wb") as errors:
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=to, stderr=errors, cwd=soak.work, env=soak.env,
                                   start_new_session=True)
        try:
            while started.poll() is None and time.monotonic() < end:
                memory.append(host_memory(soak.lwp, started.pid))
                time.sleep(5)
        finally:
            status = started.poll()
            if status is None:
                (soak.keep / f"hung.{started.pid}").write_text(states(tree(started.pid)))
                status = f"not ended {LIMIT} s after its time"
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
    return Result(out.read_bytes(), err.read_bytes(), status, read_counts(counts), words, None), memory


def grown(memory, minutes):
    """How the host's memory has grown, or nothing; and its medians and largest values by fifths of the time.

    The host throws translations away when there are too many, so its memory goes up and down.
    """
    size = max(len(memory) // 5, 1)
    fifths = [memory[at:at + size] for at in range(0, size * 5, size) if memory[at:at + size]]
    shown = ", ".join(f"{statistics.median(fifth):.0f} ({max(fifth):.0f})" for fifth in fifths)
    if minutes < 10 or len(fifths) < 5:
        return "", shown
    before, after = max(fifths[1] + fifths[2]), max(fifths[3] + fifths[4])
    return after > 1.05 * before and f"the host has grown: {shown} MiB", shown


def churn(soak, minutes):
    programs, cwd = churns(soak), soak.scratch("churn")
    native = {name: soak.run("native", Program(*command, "3"), None, cwd) for name, command in programs.items()}

    def one(name):
        result, memory = watched(soak, name, programs[name], minutes * 60)
        wrong = difference(result, native[name]) or ("" if result.counts else "no counts")
        bigger, shown = grown(memory, minutes)
        if soak.options.keep:
            (soak.keep / f"churn-{name}.memory").write_text("".join(f"{figure:.1f}\n" for figure in memory))
        if wrong or bigger:
            text = "\n".join([wrong or bigger, "every five seconds, in MiB:", *(f"{figure:.1f}" for figure in memory)])
            soak.fail(f"churn {name}", results=[("run", result), ("native", native[name])], text=text)
        said = result.err.decode(errors="replace").strip().splitlines()
        print(f"soak: churn: {name}: {minutes} min, {'wrong' if wrong else 'right'}: {said[-1] if said else 'nothing said'}; "
              f"the host's memory by fifths of the time, median (largest): {shown} MiB", flush=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(one, name) for name in programs]:
            future.result()


PARTS = {"kills": (kills, 200, 5), "corruptions": (corruptions, 300, 10), "soak": (soak_runs, 1000, 20),
         "churn": (churn, 30, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--corruptions", type=int)
    parser.add_argument("--runs", type=int, dest="soak")
    parser.add_argument("--minutes", type=int, dest="churn")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--keep")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("part", nargs="*")
    options = parser.parse_args()
    unknown = [name for name in options.part if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    soak = Soak(options)
    soak.keep.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"soak: seed {options.seed}", flush=True)
    try:
        for name in options.part or PARTS:
            part, usual, short = PARTS[name]
            count = getattr(options, name)
            part(soak, count if count is not None else short if options.short else usual)
    finally:
        # Where this ends early, a tree of processes that never ends by itself is perhaps still there.
        end_marked(f"LWP_SOAK_MARK={os.getpid()}.".encode())
        shutil.rmtree(soak.work, ignore_errors=True)
        if not soak.failures and not os.listdir(soak.keep):
            soak.keep.rmdir()
    sys.exit(1 if soak.failures else 0)


if __name__ == "__main__":
    main()
