// Recursion, objects, closures, strings and a map. Prints a sum, and the microseconds of the second
// half of the rounds.
const ROUNDS = 16;
const fibonacci = (n) => (n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2));
class Point {
    constructor(x, y) { this.x = x; this.y = y; }
    plus(other) { return new Point(this.x + other.x, this.y ^ other.y); }
}
const steps = [(n) => n + 1, (n) => n * 3 & 0xffffff, (n) => n ^ 7];
function round(number) {
    let sum = fibonacci(27);
    let point = new Point(0, 0);
    for (let at = 0; at < 1e6; at++) point = point.plus(new Point(at & 3, at));
    sum += point.x + point.y;
    for (let at = 0; at < 2e6; at++) sum = steps[at % 3](sum) & 0xffffff;
    const map = new Map();
    for (let at = 0; at < 1e5; at++) {
        const key = 'key ' + (at * 7 + number) % 4000;
        map.set(key, (map.get(key) || 0) + at);
    }
    for (const value of map.values()) sum = (sum + value) & 0xffffff;
    return sum;
}
let sum = 0, begun = 0n;
for (let number = 0; number < ROUNDS; number++) {
    if (number === ROUNDS / 2) begun = process.hrtime.bigint();
    sum = (sum * 31 + round(number)) & 0xffffff;
}
console.log(sum);
console.log(Number((process.hrtime.bigint() - begun) / 1000n));
