// Compiles functions and regular expressions for so many seconds, has optimised code thrown away, and drops them. Prints
// that all was right, and on the standard error how much was done; ends with 1 where a function returns something else
// than one that is not compiled anew.
const expected = (factor, from, count) => {
    let sum = from;
    for (let at = 0; at < count; at++) sum = (sum * 31 + at * factor) % 1000003;
    return sum;
};
const end = Date.now() + process.argv[2] * 1000;
let generation = 0;
for (; Date.now() < end; generation++) {
    const factor = generation % 100003;
    const compiled = new Function('from', 'count', `
        let sum = from.start;
        const step = (at) => at * ${factor};
        for (let at = 0; at < count; at++) sum = (sum * 31 + step(at)) % 1000003;
        return sum; // ${generation}
    `);
    // Objects of other shapes than those that the code was optimised for have it thrown away.
    const shapes = [{ start: 5 }, { end: 1, start: 5 }, { a: 0.5, b: 'b', start: 5 }, { start: 5.0, c: [] }];
    const right = expected(factor, 5, 2000);
    for (const shape of shapes) {
        for (let time = 0; time < 40; time++) {
            const sum = compiled(shape, 2000);
            if (sum !== right) {
                console.log(`generation ${generation}: ${sum}, not ${right}`);
                process.exit(1);
            }
        }
    }
    const pattern = new RegExp(`(x{1,3}|y)-${factor}([a-f]+)`);
    for (let time = 0; time < 4; time++) {
        const found = pattern.exec(`zz xxx-${factor}${'abc'.repeat(20)} -`);
        if (found === null || found[1] !== 'xxx' || found[2].length !== 60) {
            console.log(`generation ${generation}: the pattern finds ${found}`);
            process.exit(1);
        }
    }
}
console.log('right');
console.error(`${generation} generations`);
