// Sums of a pprof profile, read by the pprof-format package, whose folder is the first argument.
const [folder, file] = process.argv.slice(2);
const {Profile} = require(folder);
const bytes = require('zlib').gunzipSync(require('fs').readFileSync(file));
const p = Profile.decode(bytes);
const s = p.stringTable.strings;
const sums = {};
const names = id => p.location[Number(id) - 1].line
    .map(line => s[Number(p.function[Number(line.functionId) - 1].name)]);
const sum = name => sums[name] ??= [0, 0];
for (const sample of p.sample) {
    const value = Number(sample.value[0]);
    const stack = sample.locationId.flatMap(names);
    sum(stack[0])[0] += value;
    for (const name of new Set(stack)) sum(name)[1] += value;
}
console.log(JSON.stringify({sums, type: s[Number(p.sampleType[0].type)], period: Number(p.period),
    comments: p.comment.map(number => s[Number(number)])}));
