#!/bin/bash
# Runs programs and test suites of others natively and under `lwp run`, and compares what they print and how they end.
#
#   tests/foreign/programs.sh [-t SECONDS] [-m MODES] [NAME]...
#
#   -t SECONDS   limit of one run (default 600)
#   -m MODES     any of "run stat" (default run)
#   NAME         redis postgres nginx chromium java asyncio subprocess multiprocessing threading signal perl go erlang
#                haskell lisp lto; default: all
#
# LWP_BIN names the lwp to test (default: target/release/lwp beside this folder). What is not installed is skipped with
# a message. What a program prints that differs from run to run natively (times, numbers of processes) is left out
# before comparing. Ends with 1 if anything differs.
# Promise: F25: with the programs that are installed
set -u

here=$(cd "$(dirname "$0")" && pwd)
lwp=${LWP_BIN:-$here/../../target/release/lwp}
limit=600 modes=run one=
if [ "${1:-}" = --one ]; then
    one=$2 mode=$3 stat_file=
    shift $#
fi
while getopts t:m: option; do
    case $option in
    t) limit=$OPTARG ;;
    m) modes=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ -x "$lwp" ] || { echo "programs: no lwp at $lwp; set LWP_BIN" >&2; exit 2; }
lwp=$(realpath "$lwp")
export LC_ALL=C TZ=UTC

# has TOOL...: 77 and a message where one of them is missing.
has() {
    for tool in "$@"; do
        [ -x "$tool" ] || command -v "$tool" >/dev/null || { echo "skipped: no $tool"; return 77; }
    done
}

# on COMMAND...: natively, or on the virtual CPU, as $mode says.
on() {
    case $mode in
    native) "$@" ;;
    *) "$lwp" $mode ${stat_file:+-o "$stat_file"} -- "$@" ;;
    esac
}

# served FILE COMMAND...: starts a server by `on`, waits until FILE is there or the command `ready` succeeds.
served() {
    on "$@" >server.log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        ready && return 0
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    echo "the server does not answer"
    tail -5 server.log
    kill $server 2>/dev/null
    return 1
}

# A port of the loopback device that nobody uses.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

try_redis() {
    has redis-server redis-cli redis-benchmark python3 || return
    port=$(free_port)
    ready() { [ "$(redis-cli -p "$port" ping 2>/dev/null)" = PONG ]; }
    served redis-server --port "$port" --save '' --appendonly yes --dir . --io-threads 2 || return 1
    redis-cli -p "$port" eval 'local s = 0 for i = 1, 10000 do s = s + redis.call("INCRBY", "n", i) % 7 end return s' 0
    redis-benchmark -p "$port" -q -n 5000 -c 20 -t set,get,lpush,lpop,zadd,mset | sed 's/.*\r//; s/:.*//'
    redis-cli -p "$port" bgrewriteaof
    for _ in $(seq 300); do
        redis-cli -p "$port" info persistence | grep -q 'aof_rewrite_in_progress:0' && break
        sleep 0.1
    done
    redis-cli -p "$port" info persistence | tr -d '\r' | grep -E 'aof_last_bgrewrite_status|aof_last_write_status'
    redis-cli -p "$port" dbsize
    redis-cli -p "$port" shutdown
    wait $server
    echo "ends with $?"
}

try_postgres() {
    local at user=()
    at=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
    has "${at:-/usr/lib/postgresql}/initdb" "$at/pgbench" python3 || return
    if [ "$(id -u)" = 0 ]; then
        has setpriv || return
        user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
        chmod 755 "$work"; chown -R nobody:nogroup .
    fi
    port=$(free_port)
    on "${user[@]}" "$at/initdb" -D data -A trust -U tester --no-sync >init.log 2>&1 || { tail -3 init.log; return 1; }
    ready() { "$at/pg_isready" -q -h 127.0.0.1 -p "$port"; }
    served "${user[@]}" "$at/postgres" -D data -p "$port" -k "$PWD" -c fsync=off || return 1
    local to=(-h 127.0.0.1 -p "$port" -U tester)
    "$at/pgbench" "${to[@]}" -q -i -s 2 postgres >/dev/null 2>&1; echo "init $?"
    "$at/pgbench" "${to[@]}" -c 4 -j 2 -t 100 postgres 2>&1 | grep -E 'number of transactions|failed'
    "$at/psql" "${to[@]}" -Atc 'select sum(i), md5(string_agg(i::text, chr(44) order by i)) from generate_series(1, 50000) i' postgres
    "$at/psql" "${to[@]}" -Atc 'set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set min_parallel_table_scan_size = 0; select count(*), sum(aid) from pgbench_accounts where abs(bid) < 3' postgres
    kill -INT $(head -1 data/postmaster.pid)
    wait $server
    echo "ends with $?"
}

try_nginx() {
    local program
    program=$(PATH=$PATH:/usr/sbin command -v nginx) || { echo "skipped: no nginx"; return 77; }
    has curl python3 || return
    port=$(free_port)
    mkdir -p html logs; head -c 300000 /dev/zero | tr '\0' x > html/large; echo small > html/index.html
    chmod a+x "$work"; chmod -R a+rX .
    cat > conf <<END
worker_processes 2; daemon off; pid nginx.pid; error_log logs/error.log;
events { worker_connections 128; }
http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server { listen 127.0.0.1:$port; root $PWD/html; gzip on; gzip_types *; } }
END
    ready() { curl -fsS -o /dev/null "http://127.0.0.1:$port/" 2>/dev/null; }
    served "$program" -p "$PWD" -c conf || return 1
    for i in $(seq 40); do curl -fsS --compressed "http://127.0.0.1:$port/large"; done | cksum
    for i in $(seq 20); do curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$port/none"; done | sort | uniq -c
    kill -HUP $(cat nginx.pid); sleep 0.5; curl -fsS "http://127.0.0.1:$port/"
    kill -QUIT $(cat nginx.pid)
    wait $server
    echo "ends with $?"
}

try_chromium() {
    has chromium || return
    cat > page.html <<'END'
<title>x</title><p id=r></p><script>
let s = 0; for (let i = 0; i < 3e6; i++) s = (s * 31 + i) % 1000003;
const w = new Worker(URL.createObjectURL(new Blob(["let t=0; for (let i=0;i<1e6;i++) t=(t+i*i)%9973; postMessage(t)"])));
w.onmessage = e => { document.getElementById('r').textContent = 'sum ' + s + ' worker ' + e.data; };
</script>
END
    on chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --virtual-time-budget=60000 \
        --timeout=300000 --dump-dom "file://$PWD/page.html" 2>/dev/null
    echo "ends with $?"
}

try_java() {
    has java javac || return
    cat > Work.java <<'END'
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Work {
    record Point(int x, int y) {}
    public static void main(String[] a) throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        var parts = new ArrayList<Future<Long>>();
        for (int t = 0; t < 8; t++) { final int n = t; parts.add(pool.submit(() -> {
            var map = new HashMap<Point, byte[]>(); long s = 0;
            for (int i = 0; i < 60000; i++) { map.put(new Point(i % 997, n), new byte[i % 512]); s += map.size(); }
            return s; })); }
        long sum = 0; for (var p : parts) sum += p.get();
        pool.shutdown();
        System.out.println(sum + " " + IntStream.range(0, 200000).parallel().filter(i -> i % 3 == 0).asLongStream().sum());
        try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println("null"); }
        try { deep(0); } catch (StackOverflowError e) { System.out.println("deep"); }
    }
    static int deep(int n) { return deep(n + 1) + 1; }
}
END
    javac Work.java || return 1
    for collector in Serial Parallel G1 Z Shenandoah Epsilon; do
        options="-Xlog:disable -XX:+UnlockExperimentalVMOptions -XX:+Use${collector}GC -Xmx512m"
        [ $collector = Epsilon ] && options="${options% *} -Xmx2g"
        java $options -version >/dev/null 2>&1 || { echo "no $collector here"; continue; }
        on java $options -cp . Work
        echo "$collector ends with $?"
    done
}

# python_test NAME [OPTION]...: a part of CPython's own tests.
python_test() {
    has python3 || return
    python3 -c "import test.$1" 2>/dev/null || { echo "skipped: python3 has no $1"; return 77; }
    local module=test.$1
    [ ! -f work.py ] || module=work
    on python3 -m unittest -q "$module" "${@:2}" > log 2>&1
    local code=$?
    grep -E '^(FAIL|ERROR|Ran|OK|FAILED)' log | sed -E 's/ in [0-9.]+s//; s/skipped=[0-9]+//' | sort | uniq
    echo "ends with $code"
}
try_asyncio() { python_test test_asyncio; }
try_subprocess() { python_test test_subprocess; }
try_multiprocessing() {
    echo 'import test._test_multiprocessing as t; t.install_tests_in_module_dict(globals(), "fork")' > work.py
    python_test _test_multiprocessing -k TestQueue -k TestPool -k TestLock -k TestConnection -k TestProcess
}
try_threading() { python_test test_threading; }
try_signal() { python_test test_signal; }

try_perl() {
    has perl || return
    cat > work.pl <<'END'
use strict; use warnings; use POSIX ":sys_wait_h"; use Socket;
my %h; $h{$_ % 1009} .= chr(65 + $_ % 26) for 1 .. 200000; my $s = 0; $s += length $h{$_} for keys %h; print "$s\n";
$_ = join ",", 1 .. 20000; my $n = () = /\b(\d)\d*\1\b/g; print "$n\n";
my @kids = map { my $p = fork; if (!$p) { exit($_) } $p } 1 .. 20; my $codes = 0;
for (@kids) { waitpid $_, 0; $codes += $? >> 8 } print "$codes\n";
socketpair my $a, my $b, AF_UNIX, SOCK_STREAM, 0; if (!fork) { syswrite $b, "x" x 100000; exit } close $b;
my $t = 0; while (sysread $a, my $d, 4096) { $t += length $d } wait; print "$t\n";
my $c = 0; local $SIG{ALRM} = sub { $c++ }; for (1 .. 3) { alarm 1; select undef, undef, undef, 5 } print "$c\n";
print `echo from a shell`; open my $p, "-|", "sort", "-n", $0 or die; my @l = <$p>; print scalar(@l), "\n"; die "over\n";
END
    on perl work.pl
    echo "ends with $?"
    # Perl's own tests of what its distribution brings, where they are installed.
    local tests; tests=$(ls /usr/share/perl/*/Test*/t/*.t /usr/lib/x86_64-linux-gnu/perl*/t/*.t 2>/dev/null | head -20)
    [ -z "$tests" ] || { on prove $tests 2>&1 | grep -E 'Result|Failed'; }
}

try_go() {
    has go || return
    export GOCACHE=$work/go-cache GOPATH=$work/go GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off
    cat > main.go <<'END'
package main

import ("fmt"; "os"; "os/exec"; "runtime"; "sync"; "time"; "net"; "io")

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	sum := 0
	for i := 0; i < 200; i++ {
		wg.Add(1)
		go func(n int) { defer wg.Done(); m := map[int][]byte{}; for j := 0; j < 500; j++ { m[j] = make([]byte, j); runtime.Gosched() }; mu.Lock(); sum += len(m) + n; mu.Unlock() }(i)
	}
	wg.Wait(); runtime.GC(); fmt.Println(sum)
	done := make(chan bool); go func() { for { select { case <-done: return; default: } } }()
	time.Sleep(50 * time.Millisecond); runtime.GC(); done <- true
	l, _ := net.Listen("tcp", "127.0.0.1:0"); go func() { c, _ := l.Accept(); io.Copy(c, c); c.Close() }()
	c, _ := net.Dial("tcp", l.Addr().String()); fmt.Fprint(c, "echo"); c.(*net.TCPConn).CloseWrite(); b, _ := io.ReadAll(c); fmt.Println(string(b))
	out, err := exec.Command("sh", "-c", "echo child; exit 3").Output(); fmt.Println(string(out), err)
	defer func() { fmt.Println(recover()); os.Exit(4) }()
	var p *int; *p = 1
}
END
    go build -o main main.go || return 1
    on ./main
    echo "ends with $?"
    # The compiler itself, which is many processes of Go.
    on env GOCACHE="$PWD/cache" go build -o other main.go; echo "build ends with $?"
}

try_erlang() {
    has erl || return
    cat > work.erl <<'END'
-module(work). -export([main/0]).
loop(0, P) -> P ! done; loop(N, P) -> receive {K, M} -> K ! M + 1, loop(N - 1, P) end.
main() ->
    P = self(), Q = spawn(fun() -> loop(10000, P) end),
    R = lists:foldl(fun(_, S) -> Q ! {P, S}, receive X when is_integer(X) -> X end end, 0, lists:seq(1, 10000)),
    receive done -> ok end,
    L = [spawn_monitor(fun() -> exit(lists:sum(lists:seq(1, N))) end) || N <- lists:seq(1, 500)],
    S = lists:sum([receive {'DOWN', M, _, _, V} -> V end || {_, M} <- L]),
    {ok, B} = file:read_file("work.erl"), Z = byte_size(zlib:compress(B)) > 100,
    io:format("~p ~p ~p ~p~n", [R, S, Z, catch error(x)  =:= ok]), halt(5).
END
    erlc work.erl || return 1
    on erl -noshell -s work main
    echo "ends with $?"
}

try_haskell() {
    has ghc || return
    cat > Work.hs <<'END'
import Control.Concurrent
import Control.Exception
import qualified Data.Map.Strict as M
import System.Exit
main :: IO ()
main = do
  vs <- mapM (\n -> do { v <- newEmptyMVar; _ <- forkIO (evaluate (M.size (M.fromList [(i * n `mod` 7919, i) | i <- [1 .. 5000 :: Int]])) >>= putMVar v); pure v }) [1 .. 40]
  xs <- mapM takeMVar vs
  print (sum xs)
  r <- try (evaluate (1 `div` (0 :: Int)))
  print (r :: Either ArithException Int)
  exitWith (ExitFailure 6)
END
    ghc -v0 -O1 -threaded Work.hs -o work || return 1
    on ./work +RTS -N2
    echo "ends with $?"
}

try_lisp() {
    has sbcl || return
    cat > work.lisp <<'END'
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(compile 'fib)
(format t "~a~%" (fib 27))
(let ((h (make-hash-table :test 'equal))) (dotimes (i 200000) (push i (gethash (format nil "~a" (mod i 997)) h))) (gc :full t) (format t "~a~%" (hash-table-count h)))
(format t "~a~%" (handler-case (car 1) (type-error () :type)))
(format t "~a~%" (handler-case (/ 1 0) (division-by-zero () :zero)))
(labels ((deep (n) (+ 1 (deep (+ n 1))))) (format t "~a~%" (handler-case (deep 0) (storage-condition () :deep))))
(let ((f (compile nil '(lambda (x) (* x 2))))) (format t "~a~%" (loop for i below 1000 sum (funcall f i))))
(sb-ext:exit :code 7)
END
    on sbcl --non-interactive --no-userinit --load work.lisp 2>/dev/null
    echo "ends with $?"
}

# The linker has the compiler, make and several processes at a time do its work.
try_lto() {
    has gcc make || return
    for part in 1 2 3 4 5 6; do
        echo "int f$part(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += i * $part % 7; return sum; }" > f$part.c
    done
    cat > main.c <<'END'
#include <stdio.h>
int f1(int), f2(int), f3(int), f4(int), f5(int), f6(int);
int main(void) { printf("%d\n", f1(90) + f2(80) + f3(70) + f4(60) + f5(50) + f6(40)); return 0; }
END
    on gcc -O2 -flto=4 -flto-partition=max -o program main.c f?.c
    echo "ends with $?"
    ./program && cksum < program
}

if [ -n "$one" ]; then
    work=$PROGRAMS_WORK
    export HOME=$work
    cd "$work/$one.$mode" || exit 2
    [ "$mode" != stat ] || stat_file=$work/counts
    "try_$one"
    exit
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/programs.XXXXXX")
# What has been translated is perhaps still being kept.
trap 'rm -rf "$work" 2>/dev/null || { sleep 2; rm -rf "$work"; }' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- redis postgres nginx chromium java asyncio subprocess multiprocessing threading signal perl go erlang \
    haskell lisp lto

# run NAME MODE: one function in a folder of its own, in a process group of its own, limited in time.
run() {
    mkdir "$work/$1.$2"
    PROGRAMS_WORK=$work timeout -k 10 "$limit" "$0" --one "$1" "$2" > "$work/$1.$2.out" 2>&1
}

failed=0
for name in "$@"; do
    run "$name" native
    code=$?
    if [ $code = 77 ]; then
        echo "$name: $(tail -1 "$work/$name.native.out")"
        continue
    fi
    echo "ends with $code" >> "$work/$name.native.out"
    for mode in $modes; do
        run "$name" "$mode"
        echo "ends with $?" >> "$work/$name.$mode.out"
        # `lwp stat` names the daemons that it leaves behind, epmd of Erlang for one.
        sed -Ei '/^lwp: [0-9]+ process(es)? that the program leaves behind /d' "$work/$name.$mode.out"
        if diff "$work/$name.native.out" "$work/$name.$mode.out" > "$work/differences"; then
            echo "$name: as natively ($mode)"
        else
            echo "$name: differs ($mode)"
            sed 's/^/    /' "$work/differences" | head -40
            failed=1
        fi
    done
done
exit $failed
