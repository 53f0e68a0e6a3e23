function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function leaf(x) { let s = 0; for (let i = 0; i < 200; i++) s += i ^ x; return s; }
function middle(n) { let t = 0; for (let i = 0; i < n; i++) t += leaf(i); return t; }
console.log(fib(18), middle(2000), process.execArgv.length, process.argv.length);
