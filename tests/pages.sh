#!/bin/sh
# Takes a picture of each view of `lwp serve`, light and dark, for somebody to look at: recordings of programs in
# Rust, C++, Python and Java, a comparison, an exact recording, one thread, and `lwp flamegraph`'s page.
#
#     tests/pages.sh [DIR]
#
# DIR (default: target/pages beside this folder) takes recordings and pictures, as PROGRAM-VIEW-light.png and -dark.png.
# LWP_BIN is the command (default: target/debug/lwp). A program whose compiler or interpreter is missing is left out, and
# said. tests/viewers.sh installs Chromium.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
lwp=${LWP_BIN:-$here/../target/debug/lwp}
dir=${1:-$here/../target/pages}
mkdir -p "$dir"
cd "$dir"
command -v chromium >/dev/null || { echo "pages.sh: there is no chromium; tests/viewers.sh installs it" >&2; exit 1; }

server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || true' EXIT

# picture NAME URL: light and dark.
picture() {
    for scheme in light dark; do
        test "$scheme" = dark && preferred=0 || preferred=1
        timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$dir/browser" \
            --window-size="${WINDOW:-1400,1000}" --blink-settings=preferredColorScheme=$preferred \
            --virtual-time-budget=3000 --screenshot="$1-$scheme.png" "$2" >/dev/null 2>&1 ||
            echo "pages.sh: no picture of $2" >&2
    done
}

# serve RECORDING...: sets url.
serve() {
    rm -f url
    "$lwp" serve "$@" >url 2>serve.log &
    server=$!
    for _ in $(seq 600); do
        test -s url && break
        kill -0 "$server" 2>/dev/null || { cat serve.log >&2; exit 1; }
        sleep 0.1
    done
    url=$(cat url)
}

# views NAME QUERY: all views.
views() {
    for view in summary functions tree calls flame code time; do
        picture "$1-$view" "$url$view?$2"
    done
}

stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}

# missing COMMAND: says so.
missing() {
    command -v "$1" >/dev/null && return 1
    echo "pages.sh: there is no $1, its recording is left out" >&2
}

cat >words.rs <<'END'
use std::collections::HashMap;
#[inline(never)]
fn counted(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}
#[inline(never)]
fn text(seed: u64) -> String {
    let mut at = seed;
    let mut out = String::new();
    for _ in 0..20_000 {
        at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        out.push_str(&format!("w{} ", at >> 54));
    }
    out
}
fn main() {
    let threads: Vec<_> = (0..3)
        .map(|n| std::thread::Builder::new().name(format!("counter-{n}")).spawn(move || counted(&text(n)).len()).unwrap())
        .collect();
    let sum: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{sum}");
}
END
cat >sort.cc <<'END'
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square : Shape { double side; explicit Square(double s) : side(s) {} double area() const override { return side * side; } };
struct Circle : Shape { double radius; explicit Circle(double r) : radius(r) {} double area() const override { return 3.14159 * radius * radius; } };
template <typename Key> std::map<Key, std::vector<double>> grouped(const std::vector<Shape *> &shapes) {
    std::map<Key, std::vector<double>> groups;
    for (const Shape *shape : shapes) groups[std::to_string(static_cast<int>(shape->area()) % 100)].push_back(shape->area());
    return groups;
}
__attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
int main(int argc, char **) {
    std::vector<Shape *> shapes;
    for (int n = 0; n < 20000; n++) shapes.push_back(n % 2 ? static_cast<Shape *>(new Square(n)) : new Circle(n));
    std::sort(shapes.begin(), shapes.end(), [](const Shape *a, const Shape *b) { return a->area() < b->area(); });
    auto groups = grouped<std::string>(shapes);
    std::printf("%zu %d\n", groups.size(), fibonacci(20 + argc));
    for (Shape *shape : shapes) delete shape;
}
END
cat >queens.py <<'END'
import json
def free(board, row, column):
    for other in range(row):
        if board[other] == column or abs(board[other] - column) == row - other:
            return False
    return True
def solve(board, row, size):
    if row == size:
        return 1
    found = 0
    for column in range(size):
        if free(board, row, column):
            board[row] = column
            found += solve(board, row + 1, size)
    return found
def main():
    print(json.dumps({size: solve([0] * size, 0, size) for size in range(4, 8)}))
main()
END
cat >Words.java <<'END'
import java.util.*;
public class Words {
    static int collatz(long n) { int steps = 0; while (n != 1) { n = n % 2 == 0 ? n / 2 : 3 * n + 1; steps++; } return steps; }
    static Map<Integer, Integer> histogram(int upTo) {
        Map<Integer, Integer> counts = new TreeMap<>();
        for (int n = 1; n < upTo; n++) counts.merge(collatz(n), 1, Integer::sum);
        return counts;
    }
    public static void main(String[] words) { System.out.println(histogram(60000).size()); }
}
END

missing rustc || { rustc -g -O -o words words.rs && timeout 600 "$lwp" record -q -c 20K -o rust.data -- ./words >/dev/null; }
missing g++ || {
    g++ -g -O1 -o sort sort.cc
    timeout 600 "$lwp" record -q -c 5K -o cpp.data -- ./sort >/dev/null
    timeout 600 "$lwp" record -q -o exact.data -- ./sort >/dev/null
    timeout 600 "$lwp" record -q -o exact2.data -- ./sort more >/dev/null
}
missing python3 || timeout 600 "$lwp" record -q -c 10K -o python.data -- python3 queens.py >/dev/null
missing java || timeout 600 "$lwp" record -q -c 200K -o java.data -- java -XX:+UseSerialGC Words.java >/dev/null

for name in rust cpp python java exact; do
    test -f "$name.data" || continue
    serve "$name.data"
    views "$name" ""
    if test "$name" = cpp; then
        picture cpp-inverted "${url}tree?inv=1"
        picture cpp-folded "${url}flame?fold=1&up=1"
        WINDOW=600,1000 picture cpp-narrow "${url}functions"
    fi
    test "$name" != rust || picture rust-threads "${url}flame?by=thread"
    stop
done
if test -f exact2.data; then
    serve exact.data exact2.data
    views diff "base=0"
    stop
fi
if test -f cpp.data; then
    "$lwp" flamegraph -i cpp.data -o cpp.html
    picture standalone "file://$dir/cpp.html"
fi
echo "pages.sh: pictures are in $dir"
