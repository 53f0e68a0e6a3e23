#!/bin/sh
# Runs programs that are sensitive to timing many times natively and under lwp, and reports every run
# whose output or exit status is not that of the first native run.
#
#     tests/stress.sh [-n ROUNDS] [-t SECONDS] [-m MODES] [NAME]...
#
#   -n ROUNDS    runs per program and mode (default 20)
#   -t SECONDS   limit of one run (default 120); a run that exceeds it is killed and counts as a failure
#   -m MODES     any of "native run stat" (default all three)
#   NAME         xz zstd java node python threads fork jit signals; default: every one that is installed.
#                Or a program of tests/programs, as code/guarded_pages, or a folder of them, as code/
#
# LWP_BIN names the lwp to test (default: target/release/lwp beside this folder).
set -u

here=$(cd "$(dirname "$0")" && pwd)
rounds=20
limit=120
modes="native run stat"
while getopts n:t:m: option; do
    case $option in
    n) rounds=$OPTARG ;;
    t) limit=$OPTARG ;;
    m) modes=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- xz zstd java node python threads fork jit signals
for name; do
    shift
    case $name in
    */) for file in "$here/programs/$name"*.c; do
            case ${file##*/} in
            lib*) ;;
            *) set -- "$@" "$name$(basename "$file" .c)" ;;
            esac
        done ;;
    *) set -- "$@" "$name" ;;
    esac
done
lwp=${LWP_BIN:-$here/../target/release/lwp}
case $modes in
*run* | *stat*) [ -x "$lwp" ] || { echo "stress: no lwp at $lwp; set LWP_BIN" >&2; exit 2; } ;;
esac

dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 2

# compile NAME GROUP/PROGRAM: the test program as an executable called NAME, and its libraries.
compile() {
    for library in $(sed -n 's/^\/\/@ libs: //p' "$here/programs/$2.c"); do
        gcc -g -shared -fPIC -o "$library.so" "$here/programs/$(dirname "$2")/$library.c" || return 1
    done
    flags=$(sed -n 's/^\/\/@ cflags: //p' "$here/programs/$2.c")
    # shellcheck disable=SC2086 # the flags are words
    gcc -g -I "$here/programs" $flags -o "$1" "$here/programs/$2.c" -lm -lutil -ldl
}

# setup NAME: prepares a program and sets $command, or fails if something is missing.
setup() {
    case $1 in
    xz)
        command -v xz >/dev/null || return 1
        seq 1 500000 >xz.in
        command="xz -T2 --block-size=300KiB -3 -c xz.in | cksum" ;;
    zstd)
        command -v zstd >/dev/null || return 1
        seq 1 600000 >zstd.in
        command="zstd -q -T4 -9 -c zstd.in | cksum" ;;
    java)
        command -v javac >/dev/null || return 1
        cat >Stress.java <<'JAVA'
import java.util.*; import java.util.concurrent.*;
public class Stress {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    static int nulls(String[] a) { int c = 0; for (String s : a) try { c += s.length(); } catch (NullPointerException e) { c--; } return c; }
    public static void main(String[] x) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8); List<Future<Integer>> all = new ArrayList<>();
        for (int i = 0; i < 100; i++) { int n = 12 + i % 10; all.add(pool.submit(() -> fib(n))); }
        long sum = 0; for (Future<Integer> f : all) sum += f.get(); pool.shutdown();
        String[] a = new String[5000]; for (int i = 0; i < a.length; i += 3) a[i] = "s" + i;
        for (int i = 0; i < 30; i++) sum += nulls(a);
        System.gc(); System.out.println(sum);
    }
}
JAVA
        [ -f Stress.class ] || javac Stress.java || return 1
        command="java -cp . Stress" ;;
    node)
        command -v node >/dev/null || return 1
        cat >stress.js <<'JS'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
function hot(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
if (!isMainThread) parentPort.postMessage(hot(workerData));
else {
    let s = 0; for (let i = 0; i < 300; i++) s = (s + hot(3000 + i)) | 0;
    Promise.all([1e5, 2e5, 3e5, 4e5].map(n => new Promise((ok, no) => {
        const w = new Worker(__filename, { workerData: n }); w.on('message', ok); w.on('error', no);
    }))).then(r => console.log(s, r.join()));
}
JS
        command="node stress.js" ;;
    python)
        python=$(python3 -c 'import sys; print(sys.executable)') || return 1
        cat >stress.py <<'PY'
import signal, subprocess, threading, time
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
results = []
def work(n):
    results.append(sum(i * i % 7 for i in range(n)))
threads = [threading.Thread(target=work, args=(20000 + i,)) for i in range(6)]
[t.start() for t in threads]
for i in range(5):
    assert subprocess.run(['true']).returncode == 0
[t.join() for t in threads]
end = time.monotonic() + 20
while ticks < 300 and time.monotonic() < end:
    work(500)
signal.setitimer(signal.ITIMER_REAL, 0)
print(sum(results[:6]), ticks >= 300)
PY
        command="$python stress.py" ;;
    threads) setup threads/signals_and_threads ;;
    fork) setup processes/many_children ;;
    jit) setup code/write_xor_execute ;;
    signals) setup registers/asynchronous ;;
    */*)
        file=$(echo "$1" | tr / _)
        [ -x "$file" ] || compile "$file" "$1" || return 1
        command="./$file" ;;
    *)
        echo "stress: no program $1" >&2
        exit 2 ;;
    esac
}

# one MODE: runs $command in that mode; its output and status go to the file "got".
one() {
    case $1 in
    native) timeout -k 5 "$limit" sh -c "$command" >out 2>err ;;
    run) timeout -k 5 "$limit" "$lwp" run -- sh -c "$command" >out 2>err ;;
    stat) timeout -k 5 "$limit" "$lwp" stat -o counts -- sh -c "$command" >out 2>err ;;
    *) echo "stress: no mode $1" >&2; exit 2 ;;
    esac
    status=$?
    { cat out; echo "-- stderr --"; cat err; echo "-- status $status"; } >got
}

failures=0
for name in "$@"; do
    if ! setup "$name"; then
        echo "$name: skipped, a tool is missing"
        continue
    fi
    one native
    mv got want
    if [ "$status" -ne 0 ]; then
        echo "$name: fails natively"
        cat want
        failures=$((failures + 1))
        continue
    fi
    for mode in $modes; do
        bad=0
        round=0
        begin=$(date +%s)
        while [ $round -lt "$rounds" ]; do
            round=$((round + 1))
            one "$mode"
            if ! cmp -s want got; then
                bad=$((bad + 1))
                [ "$status" -eq 124 ] || [ "$status" -eq 137 ] && echo "$name, $mode, run $round: exceeded $limit s"
                [ $bad -gt 3 ] || diff want got | head -20
            fi
        done
        echo "$name $mode: $((rounds - bad)) of $rounds agree, $((($(date +%s) - begin) * 1000 / rounds)) ms each"
        [ $bad -eq 0 ] || failures=$((failures + 1))
    done
done
[ $failures -eq 0 ]
