//! Installed programs, natively and on the virtual CPU. Each test is skipped, and says so, where
//! its program is missing.
//!
//! Promise: F9
//! Promise: F10: node and java
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_tests::{Comparison, End, find_tool};
use std::process::Command;

/// Path of a program, or a note and `return`.
macro_rules! need {
    ($($tool:literal),+) => {
        $(if find_tool($tool).is_none() {
            eprintln!("skipped: no {}", $tool);
            return;
        })+
    };
}

/// A shell command line.
fn sh(script: &str) -> Comparison<'_> {
    Comparison::new(&["/bin/sh", "-c", script])
}

/// About `kilobytes` of text that compresses like text, always the same.
fn text(kilobytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["alpha", "beta,", "gamma", "delta\n", "epsilon", "0x1234", "eta.", "theta;"];
    let mut state = 1_u64;
    let mut out = Vec::with_capacity(kilobytes * 1024 + 16);
    while out.len() < kilobytes * 1024 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(WORDS[usize::try_from(state >> 61).expect("three bits")].as_bytes());
        out.push(if state >> 40 & 7 == 0 { b'\n' } else { b' ' });
    }
    out
}

/// The interpreter itself: what is first in the path may be a script that looks for it.
fn python() -> Option<String> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let path = String::from_utf8(output.ok()?.stdout).ok()?.trim().to_owned();
    (!path.is_empty()).then_some(path)
}

fn python_script(script: &str) -> Option<Comparison<'static>> {
    let Some(python) = python() else {
        eprintln!("skipped: no python3");
        return None;
    };
    Some(Comparison::new(&[python.as_str(), "script.py"]).file("script.py", script))
}

#[test]
fn list_a_large_tree() {
    Comparison::new(&["/bin/ls", "-lR", "/usr/share"]).check();
}

#[test]
fn hash_a_large_tree() {
    sh("find /usr/include -type f | sort | xargs sha1sum | sha1sum").check();
}

#[test]
fn text_utilities() {
    sh("sort data | uniq -c | sort -rn | head -5; tr a-z A-Z <data | grep -c BETA; wc data; \
        sed 's/alpha/omega/g; /^0x/d' data | md5sum; cut -c1-20 data | rev | md5sum; \
        awk '{ n[$1]++ } END { for (w in n) s += n[w]; print NR, s }' data; \
        split -l 1000 data part. && cat part.* | cmp - data && echo same; \
        od -A x -t x1z data | tail -1; nl data | fold -w 30 | md5sum; join data data | head -1; \
        seq 1 20000 | paste -sd+ | tr + '\\n' | awk '{ s += $1 } END { print s }'")
    .file("data", text(300))
    .check();
}

#[test]
fn archives() {
    need!("tar");
    sh("mkdir tree && (cd tree && split -n 50 ../data) && tar cf tree.tar --sort=name --mtime=@0 \
        --owner=0 --group=0 --mode=a+rX tree && md5sum tree.tar && rm -r tree && tar xf tree.tar && \
        cat tree/* | md5sum && tar czf - tree | tar tzf - | wc -l")
    .file("data", text(500))
    .check();
}

#[test]
fn gzip() {
    need!("gzip");
    sh("for level in 1 6 9; do gzip -n -$level -c data >data.gz && md5sum <data.gz && gzip -dc data.gz | cmp - data; done")
        .file("data", text(3000))
        .check();
}

#[test]
fn xz_with_two_threads() {
    need!("xz");
    sh("xz -T2 --block-size=512KiB -4 -c data >data.xz && md5sum <data.xz && xz -T2 -dc data.xz | cmp - data && echo same")
        .file("data", text(4000))
        .check();
}

#[test]
fn bzip2() {
    need!("bzip2");
    sh("bzip2 -k data && md5sum data.bz2 && bzip2 -dc data.bz2 | cmp - data && echo same")
        .file("data", text(2000))
        .check();
}

#[test]
fn zstd_with_two_threads() {
    need!("zstd");
    sh("zstd -q -T2 -12 -k data && md5sum data.zst && zstd -dcq data.zst | cmp - data && echo same")
        .file("data", text(3000))
        .check();
}

#[test]
fn openssl_digests_and_ciphers() {
    need!("openssl");
    sh("for d in md5 sha1 sha256 sha512 blake2b512; do openssl dgst -$d data; done; \
        for c in aes-128-cbc aes-256-ctr chacha20; do openssl enc -$c -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff \
        -iv 00112233445566778899aabbccddeeff -in data 2>/dev/null | md5sum; done; \
        openssl genrsa 1024 2>/dev/null >key.pem && openssl rsa -check -noout -in key.pem && \
        openssl dgst -sha256 -sign key.pem -out signature data && openssl rsa -in key.pem -pubout -out public.pem 2>/dev/null && \
        openssl dgst -sha256 -verify public.pem -signature signature data")
    .file("data", text(500))
    .check();
}

#[test]
fn shell_with_hundreds_of_forks_and_traps() {
    need!("bash");
    let script = r#"
        trap 'usr=$((usr+1))' USR1
        trap 'echo exit trap $usr' EXIT
        total=0
        for i in $(seq 1 150); do
            value=$(echo $((i * 2)))
            total=$((total + value))
            (exit $((i % 7))) || failures=$((failures + 1))
            [ $((i % 10)) = 0 ] && kill -USR1 $$
        done
        echo $total $failures
        for i in 1 2 3 4 5 6 7 8; do (sleep 0.0$i; exit $i) & pids="$pids $!"; done
        for pid in $pids; do wait $pid; codes="$codes $?"; done
        echo codes $codes
        echo "a b c" | while read x y z; do echo "$z $y $x"; done
        cat <(echo one) <(echo two) | tac
        f() { local n=$1; [ $n -le 1 ] && echo 1 || echo $((n * $(f $((n - 1))))); }
        f 12
        coproc cat; echo through coproc >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line; kill $COPROC_PID; wait 2>/dev/null
        timeout 0.2 sleep 10; echo timeout $?
        bash -c 'kill -TERM $$'; echo killed $?
        { for i in 1 2 3; do echo $i; done; } | xargs -P 3 -I{} sh -c 'echo {}' | sort
    "#;
    Comparison::new(&["/bin/bash", "script"]).file("script", script).check();
}

#[test]
fn perl() {
    need!("perl");
    let script = r#"
        use strict; use warnings;
        my %count; my $text = do { local (@ARGV, $/) = 'data'; <> };
        $count{$_}++ for $text =~ /(\w+)/g;
        print "$_ $count{$_}\n" for sort keys %count;
        (my $copy = $text) =~ s/(\w)(\w+)/\U$1\E$2/g;
        print length $copy, " ", unpack("%32C*", $copy), "\n";
        print scalar `echo from the shell`;
        my $pid = fork; if (!$pid) { exit 3 } waitpid $pid, 0; print $? >> 8, "\n";
        local $SIG{ALRM} = sub { die "alarm\n" };
        eval { alarm 1; 1 while 1; }; print $@;
        my @sorted = sort { $a <=> $b } map { ($_ * 7919) % 10007 } 1 .. 20000; print "@sorted[0..9]\n";
        my $n = 1; $n = ($n * 3 + 1) % 1000003 for 1 .. 300000; print "$n\n";
    "#;
    Comparison::new(&["/usr/bin/perl", "script"])
        .file("script", script)
        .file("data", text(300))
        .check();
}

#[test]
fn python_threads_and_processes() {
    let script = r#"
import concurrent.futures, hashlib, json, multiprocessing, os, queue, re, signal, subprocess, sys, threading, time
def work(n):
    return sum(i * i % 7 for i in range(n))
if __name__ == '__main__':
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(work, range(2000, 2050))))
    q = queue.Queue()
    threads = [threading.Thread(target=lambda: [q.put(i) for i in range(500)]) for _ in range(6)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(q.qsize())
    print(subprocess.run(['sh', '-c', 'echo out; echo err >&2; exit 5'], capture_output=True, text=True))
    try:
        subprocess.run(['sleep', '10'], timeout=0.3)
    except subprocess.TimeoutExpired:
        print('timeout')
    with multiprocessing.Pool(3) as pool:
        print(pool.map(work, [1000, 2000, 3000]))
    print(subprocess.run(['sh', '-c', 'kill -9 $$']).returncode)
    print(hashlib.sha256(json.dumps({str(i): list(range(i)) for i in range(100)}).encode()).hexdigest())
    print(len(re.findall(r'(a+)+b', 'aaab' * 500)))
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    print(os.waitpid(pid, 0)[1])
    ticks = 0
    def tick(*_):
        global ticks
        ticks += 1
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    end = time.monotonic() + 20
    total = 0
    while ticks < 200 and time.monotonic() < end:
        total = work(2000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(ticks >= 200, total)
"#;
    if let Some(run) = python_script(script) {
        run.check();
    }
}

#[test]
fn python_imports() {
    let script = r#"
import asyncio, bz2, collections, csv, ctypes, datetime, decimal, email, fractions, http.client, lzma, math
import pickle, random, socket, ssl, struct, tempfile, unittest, urllib.request, uuid, xml.etree.ElementTree, zlib
print(ssl.OPENSSL_VERSION.split()[0])
ssl.create_default_context()
print(decimal.Decimal(2).sqrt(), fractions.Fraction(1, 3) + 1, math.gamma(5.5))
random.seed(5); print(random.random(), random.sample(range(1000), 5))
data = b'some data ' * 10000
print(len(zlib.compress(data)), len(bz2.compress(data)), len(lzma.compress(data)))
libc = ctypes.CDLL(None)
print(libc.abs(-5))
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
array = (ctypes.c_int * 50)(*[i * 37 % 101 for i in range(50)])
libc.qsort(array, 50, 4, compare(lambda a, b: a[0] - b[0]))
print(list(array)[:10])
async def main():
    async def part(i):
        await asyncio.sleep(0.001 * (i % 5))
        return i
    print(sum(await asyncio.gather(*(part(i) for i in range(200)))))
    process = await asyncio.create_subprocess_exec('echo', 'asynchronous', stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0])
asyncio.run(main())
"#;
    if let Some(run) = python_script(script) {
        run.check();
    }
}

#[test]
fn sqlite() {
    need!("sqlite3");
    let script = "create table t(a integer primary key, b text, c real);\n\
        with recursive n(i) as (select 1 union all select i+1 from n where i<30000)\n\
        insert into t select i, printf('%05d-%s', i*7919%30011, hex(i*i)), i/7.0 from n;\n\
        create index tb on t(b);\n\
        select count(*), sum(a), round(sum(c),3), min(b), max(b) from t;\n\
        select substr(b,1,2) g, count(*), avg(a) from t group by g order by 2 desc, 1 limit 5;\n\
        select count(*) from t x join t y on x.a=y.a+1 where x.b<y.b;\n\
        update t set b=upper(b)||a where a%3=0; delete from t where a%5=0;\n\
        pragma integrity_check; select count(*), total(length(b)) from t;\n";
    Comparison::new(&["/bin/sh", "-c", "sqlite3 file.db <script && md5sum file.db"])
        .file("script", script)
        .check();
}

/// A program large enough that the compiler's optimizers have work.
fn c_source() -> String {
    let mut source = String::from("#include <stdio.h>\n#include <string.h>\n");
    for i in 0..120 {
        source += &format!(
            "static int f{i}(int *a, int n) {{ int s = {i}; for (int k = 0; k < n; k++) {{ \
             s = s * {} + a[k]; if (s & {}) a[k] ^= s; switch (s % 5) {{ case 0: s++; break; \
             case 1: s -= k; break; case 3: s ^= a[n-1-k]; }} }} return s; }}\n",
            i * 2 + 3,
            i % 31 + 1,
        );
    }
    source += "int main(void) { int a[64], s = 0; for (int i = 0; i < 64; i++) a[i] = i * i;\n";
    for i in 0..120 {
        source += &format!("s += f{i}(a, 64);\n");
    }
    source + "printf(\"%d\\n\", s); return 0; }\n"
}

#[test]
fn compile_with_gcc() {
    need!("gcc");
    sh("gcc -O2 -g -fdebug-prefix-map=$PWD=. -c p.c -o p.o && md5sum p.o && gcc -O2 p.c -o p -Wl,--build-id=none && md5sum p && ./p && \
        gcc -O0 -S p.c -o - | md5sum; gcc -fsyntax-only bad.c; echo $?")
    .file("p.c", c_source())
    .file("bad.c", "int main( { return x; }\n")
    .check();
}

#[test]
fn compile_cpp_with_make() {
    need!("g++", "make");
    let source = "#include <algorithm>\n#include <iostream>\n#include <map>\n#include <string>\n#include <vector>\n\
        int main() { std::map<std::string, int> m; for (int i = 0; i < 500; i++) m[std::to_string(i * 7 % 91)] += i;\n\
        std::vector<std::pair<std::string, int>> v(m.begin(), m.end());\n\
        std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return a.second < b.second; });\n\
        for (auto &[k, n] : v) std::cout << k << ' ' << n << '\\n'; }\n";
    let makefile = "all: one two\n\t./one | md5sum; ./two | md5sum\n\
        one: p.cpp\n\tg++ -O1 -std=c++17 p.cpp -o one\ntwo: p.cpp\n\tg++ -O2 -std=c++17 p.cpp -o two\n";
    Comparison::new(&["/usr/bin/make", "-s", "-j2"])
        .file("p.cpp", source)
        .file("Makefile", makefile)
        .limit(120)
        .check();
}

#[test]
fn build_a_crate_with_cargo() {
    // The real tools: proxies would look for their settings in the home folder of the run.
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(bin) = output.ok().and_then(|o| String::from_utf8(o.stdout).ok()) else {
        eprintln!("skipped: no rustc");
        return;
    };
    let bin = format!("{}/bin", bin.trim());
    let source = "use std::collections::HashMap;\nfn main() {\n    let (tx, rx) = std::sync::mpsc::channel();\n\
        let threads: Vec<_> = (0..4).map(|t| { let tx = tx.clone(); std::thread::spawn(move || for i in 0..100 { tx.send(t * i).unwrap() }) }).collect();\n\
        drop(tx);\n    let sum: i32 = rx.iter().sum();\n    threads.into_iter().for_each(|t| t.join().unwrap());\n\
        let map: HashMap<_, _> = (0..1000).map(|i| (i, i * i)).collect();\n\
        println!(\"{sum} {}\", map.values().sum::<i32>());\n\
        println!(\"{:?}\", std::panic::catch_unwind(|| -> i32 { panic!(\"caught\") }).is_err());\n}\n\
        #[test]\nfn passes() { assert_eq!(1 + 1, 2) }\n";
    let script = format!(
        "PATH={bin}:$PATH; export CARGO_TERM_COLOR=never; cargo build -q --offline && ./target/debug/tiny; cargo test -q --offline"
    );
    fn without_times(output: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(output);
        let line = |line: &str| match line.split_once("finished in") {
            Some((before, _)) => before.to_owned(),
            // The thread's id is part of a panic message.
            None if line.starts_with("thread 'main'") => "thread".to_owned(),
            None => line.to_owned(),
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n").into_bytes()
    }
    sh(&script)
        .file("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
        .file("src/main.rs", source)
        .normalize(without_times)
        .limit(120)
        .check();
}

#[test]
fn node_with_jit_and_workers() {
    need!("node");
    let script = r#"
        const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
        const crypto = require('crypto'), zlib = require('zlib'), { execFileSync, spawn } = require('child_process');
        function hot(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
        function shape(i) { return i % 3 ? { a: i } : { b: 1, a: i }; }
        if (!isMainThread) {
            parentPort.postMessage(hot(workerData));
        } else {
            let total = 0;
            for (let i = 0; i < 200; i++) total += hot(10000 + i);
            for (let i = 0; i < 100000; i++) total += shape(i).a;
            console.log(total, [3, 1, 2].sort(), 'x'.repeat(10).replace(/x/g, (m, o) => o));
            console.log(crypto.createHash('sha256').update('data').digest('hex'));
            console.log(zlib.gzipSync(Buffer.alloc(100000, 'abc')).length);
            console.log(execFileSync('echo', ['child']).toString().trim());
            console.log(new Function('a', 'b', 'return a ** b')(2, 30), eval('[1,2,3].map(x => x * 2)'));
            const wasm = new WebAssembly.Module(new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11]));
            const add = new WebAssembly.Instance(wasm).exports.add;
            let sum = 0; for (let i = 0; i < 100000; i++) sum = add(sum, i); console.log(sum);
            try { null.x } catch (e) { console.log(e instanceof TypeError) }
            let workers = [1000, 2000, 300000].map(n => new Promise((ok, no) => {
                const w = new Worker(__filename, { workerData: n }); w.on('message', ok); w.on('error', no); }));
            Promise.all(workers).then(r => { console.log(r); setTimeout(() => console.log('timer'), 20); });
        }
    "#;
    Comparison::new(&["/usr/bin/env", "node", "script.js"]).file("script.js", script).check();
}

const JAVA: &str = r#"
    import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
    public class Hello {
        interface Shape { double area(); }
        record Square(double side) implements Shape { public double area() { return side * side; } }
        record Circle(double radius) implements Shape { public double area() { return 3 * radius * radius; } }
        static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        static int nulls(String[] a) { int c = 0; for (String s : a) try { c += s.length(); } catch (NullPointerException e) { c -= 1; } return c; }
        public static void main(String[] args) throws Exception {
            System.out.println("hello " + fib(30));
            double sum = 0; for (int i = 0; i < 2000000; i++) { Shape s = i % 3 == 0 ? new Square(i % 10) : new Circle(i % 7); sum += s.area(); }
            System.out.println(sum);
            String[] strings = new String[20000]; for (int i = 0; i < strings.length; i += 2) strings[i] = "x" + i;
            int total = 0; for (int i = 0; i < 20; i++) total += nulls(strings); System.out.println(total);
            ExecutorService pool = Executors.newFixedThreadPool(6); List<Future<Integer>> futures = new ArrayList<>();
            for (int i = 0; i < 60; i++) { int n = 15 + i % 8; futures.add(pool.submit(() -> fib(n))); }
            int all = 0; for (Future<Integer> f : futures) all += f.get(); pool.shutdown(); System.out.println(all);
            System.out.println(IntStream.range(0, 200000).parallel().mapToLong(i -> i * (long) i % 7).sum());
            Map<String, Integer> map = new TreeMap<>(); for (int i = 0; i < 50000; i++) map.merge("k" + i % 37, i, Integer::sum); System.out.println(map.get("k5"));
            System.out.println(new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
            StringBuilder text = new StringBuilder(); for (int i = 0; i < 3000; i++) text.append(String.format("%d,%x;", i, i * 31)); System.out.println(text.toString().hashCode());
            System.gc(); try { int[] a = new int[5]; a[Integer.parseInt("7")] = 1; } catch (ArrayIndexOutOfBoundsException e) { System.out.println(e.getMessage()); }
            try { deep(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        }
        static int deep(int n) { return deep(n + 1) + 1; }
    }
"#;

#[test]
fn java_compiled_and_run() {
    need!("java", "javac");
    sh("javac Hello.java && java Hello && java -Xint -version 2>/dev/null && java -XX:+UseSerialGC -Xmx64m Hello | tail -1")
        .file("Hello.java", JAVA)
        .limit(150)
        .check();
}

#[test]
fn java_from_source() {
    need!("java");
    Comparison::new(&["/usr/bin/env", "java", "Hello.java"])
        .file("Hello.java", JAVA)
        .limit(150)
        .check();
}

#[test]
fn git() {
    need!("git");
    let script = "export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'; \
        git config --global user.name n; git config --global user.email n@example.org; git config --global init.defaultBranch main; \
        git init -q repo && cd repo && for i in 1 2 3 4 5 6 7 8; do split -n $i ../data f$i. && git add . && git commit -qm c$i; done; \
        git log --format='%h %s'; git checkout -qb side HEAD~3 && echo x >g && git add g && git commit -qm side && git merge -q -m m main; \
        git rev-parse HEAD; git diff --stat HEAD~1 | tail -1; git gc -q; git fsck; git clone -q . ../copy && cd ../copy && git rev-parse HEAD && \
        git grep -c alpha | wc -l; git blame f1.aa | md5sum; git archive HEAD | md5sum; git checkout -q side && git rebase -q origin/main && git rev-parse HEAD; git status -s | wc -l";
    sh(script).file("data", text(60)).limit(120).check();
}

#[test]
fn go() {
    need!("go");
    let source = "package main\nimport (\"fmt\"; \"sync\"; \"runtime\"; \"time\")\n\
        func main() { var wg sync.WaitGroup; c := make(chan int, 10); t := 0\n\
        for i := 0; i < 50; i++ { wg.Add(1); go func(i int) { defer wg.Done(); for k := 0; k < 100; k++ { c <- i * k; if k%10 == 0 { runtime.Gosched() } } }(i) }\n\
        go func() { wg.Wait(); close(c) }(); for v := range c { t += v }\n\
        for i := 0; i < 5; i++ { time.Sleep(time.Millisecond); runtime.GC() }\n\
        func() { defer func() { fmt.Println(recover() != nil) }(); var p *int; fmt.Println(*p) }()\n\
        fmt.Println(t) }\n";
    sh("export GOCACHE=$PWD/c GOFLAGS=-mod=mod GOTOOLCHAIN=local; go build -o p p.go && ./p && go run p.go")
        .file("p.go", source)
        .limit(180)
        .check();
}

#[test]
fn tcl() {
    need!("tclsh");
    let script = "set s 0\nfor {set i 0} {$i < 50000} {incr i} { incr s [expr {$i * $i % 7}] }\nputs $s\n\
        puts [exec echo child]\nputs [lsort -integer {5 3 9 1}]\nputs [catch {error x} m]-$m\n\
        proc f n { if {$n < 2} { return $n }; expr {[f [expr {$n-1}]] + [f [expr {$n-2}]]} }\nputs [f 18]\n";
    Comparison::new(&["/usr/bin/tclsh", "script"]).file("script", script).check();
}

#[test]
fn bc() {
    need!("bc");
    let script = "scale=200\n4*a(1)\n2^2000\ndefine f(n) {\nif (n < 2) return (n);\nreturn (f(n-1)+f(n-2));\n}\nf(18)\nquit\n";
    Comparison::new(&["/usr/bin/bc", "-l", "script"]).file("script", script).check();
}

/// AddressSanitizer looks for leaks when a program ends: it traces the program's own threads.
///
/// Promise: L5
#[test]
fn sanitizers_find_what_they_find_natively() {
    need!("gcc");
    let source = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
        static void *volatile kept; static void *waits(void *unused) { void *volatile own = malloc(77); pause(); return own; }\n\
        static void *ends(void *unused) { return malloc(5); }\n\
        int main(int count, char **mode) { pthread_t threads[4]; kept = malloc(10);\n\
        switch (mode[1][0]) { case 'o': puts(\"over\"); break;\n\
        case 'l': kept = 0; memset(malloc(3000), 1, 2000); break;\n\
        case 't': for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, waits, 0);\n\
        pthread_create(threads + 3, 0, ends, 0); pthread_join(threads[3], (void **)&kept); usleep(20000); break;\n\
        case 'u': free(kept); return ((char *volatile)kept)[3] ? 7 : 7; }\n\
        return 0; }\n";
    let script = "for with in address leak address,undefined; do \
        echo 'int main(void) { return 0; }' | gcc -fsanitize=$with -x c - -o tried 2>/dev/null || continue; \
        gcc -O0 -g -pthread -w -fsanitize=$with -o p p.c || exit 1; \
        for mode in over leak threads used; do ./p $mode 2>log; echo \"$with $mode $?\"; \
        grep -o '[0-9]* byte(s) in [0-9]* object' log | sort; grep -c 'LeakSanitizer has encountered' log; done; done; true";
    sh(script).file("p.c", source).limit(240).check();
}

#[test]
fn gdb_without_a_process() {
    need!("gdb");
    sh("gdb -nx -batch -ex 'print 6*7' -ex 'python print(sum(range(100)))' 2>&1").check();
}

#[test]
fn a_missing_program_is_reported_as_by_a_shell() {
    // Through env, so that there is a native process to compare with.
    Comparison::new(&["/usr/bin/env", "no-such-program-here"]).ends(End::Code(127)).check();
}

#[test]
fn failures_keep_their_codes() {
    Comparison::new(&["/bin/sh", "-c", "ls /nonexistent; exit 42"]).ends(End::Code(42)).check();
    Comparison::new(&["/bin/sh", "-c", "kill -INT $$"]).ends(End::Signal(2)).check();
    Comparison::new(&["/bin/sh", "-c", "kill -KILL $$"]).ends(End::Signal(9)).check();
}
