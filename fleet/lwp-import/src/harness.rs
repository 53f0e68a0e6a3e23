//! Results of more benchmark harnesses: hyperfine, pytest-benchmark, Google Benchmark, Go, JMH,
//! github-action-benchmark. A benchmark that was run several times is as many recordings.

use std::collections::BTreeMap;

use lwp_facts::{Facts, Limits, Run, clean_name};
use serde_json::Value;

use crate::bench::{TIME, checked, json, picoseconds, recording};
use crate::{Error, Result};

/// The event of processor time.
const CPU: &str = "cpu-time-ps";

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn missing(name: &str, what: &str) -> Error {
    Error::Message(format!("'{}' has no {what}", clean_name(name)))
}

fn named<'a>(value: &'a Value, keys: &[&str]) -> Result<&'a str> {
    let name = keys.iter().find_map(|key| value[*key].as_str());
    name.ok_or_else(|| Error::Message("a benchmark has no name".to_owned()))
}

/// A number, which some harnesses write as a text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// An event and its value: a time, or thousandths of any other unit, because totals are whole.
fn measured(value: f64, unit: &str) -> (String, f64) {
    let time = unit.split(['/', ' ']).next().unwrap_or(unit);
    if let Some(picoseconds) = picoseconds(value, time) {
        return (TIME.to_owned(), picoseconds);
    }
    // So much in a time: what is better is less, as everywhere.
    let per = unit.rsplit_once('/').and_then(|(what, per)| {
        let is_rate = matches!(what, "ops" | "iter" | "op") && value > 0.0;
        picoseconds(1.0, per).filter(|_| is_rate)
    });
    match per {
        Some(picoseconds) => (TIME.to_owned(), picoseconds / value),
        None => (format!("thousandths-of-{unit}"), value * 1e3),
    }
}

/// The results of hyperfine, in seconds.
pub fn hyperfine(text: &str, run: &Run) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let one = |result: &Value| {
        let name = named(result, &["command"])?;
        let parameters = result["parameters"].as_object().into_iter().flatten();
        let parameters = parameters.filter_map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A command without a name has its parameters in it.
            (!name.contains(&value)).then(|| format!(" {key}={value}"))
        });
        let name = format!("{name}{}", parameters.collect::<String>());
        let time = number(&result["median"]).or_else(|| number(&result["mean"]));
        let time = time.ok_or_else(|| missing(&name, "median"))?;
        let mut values = vec![(TIME.to_owned(), time * 1e12)];
        let cpu = number(&result["user"]).zip(number(&result["system"]));
        values.extend(cpu.map(|(user, system)| (CPU.to_owned(), (user + system) * 1e12)));
        recording(run, &name, &values)
    };
    checked(list(&value, "results").iter().map(one).collect::<Result<_>>()?)
}

/// The results of pytest-benchmark, in seconds, with the commit that it knows.
pub fn pytest(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let mut run = run.clone();
    let commit = &value["commit_info"];
    for (key, field) in [("id", &mut run.commit), ("branch", &mut run.branch)] {
        if let Some(known) = commit[key].as_str().filter(|_| field.is_empty()) {
            *field = clean_name(known);
        }
    }
    started(&mut run, value["datetime"].as_str(), limits);
    let one = |benchmark: &Value| {
        let name = named(benchmark, &["fullname", "name"])?;
        let stats = &benchmark["stats"];
        let time = number(&stats["median"]).or_else(|| number(&stats["mean"]));
        let time = time.ok_or_else(|| missing(name, "median"))?;
        recording(&run, name, &[(TIME.to_owned(), time * 1e12)])
    };
    checked(list(&value, "benchmarks").iter().map(one).collect::<Result<_>>()?)
}

/// Takes the time of a run from a text, if it is one.
fn started(run: &mut Run, text: Option<&str>, limits: &Limits) {
    let Some(text) = text else { return };
    let with_zone = text.parse::<jiff::Timestamp>();
    // Without a zone, it is UTC.
    let at = with_zone.or_else(|_| format!("{text}Z").parse::<jiff::Timestamp>());
    if let Some(at) = at.ok().map(|at| at.as_second()).filter(|at| limits.is_time(*at)) {
        run.started = at;
    }
}

/// The results of Google Benchmark. Medians stand for repetitions where there are some.
pub fn google(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let mut run = run.clone();
    let context = &value["context"];
    started(&mut run, context["date"].as_str(), limits);
    if let Some(host) = context["host_name"].as_str().filter(|_| run.host.is_empty()) {
        run.host = clean_name(host);
    }
    let all = list(&value, "benchmarks");
    let is_median = |one: &Value| one["aggregate_name"] == "median";
    let has_medians = all.iter().any(is_median);
    let wanted = |one: &&Value| match has_medians {
        true => is_median(one),
        false => one["run_type"] != "aggregate",
    };
    let measured = all.iter().filter(|one| one["error_occurred"] != true).filter(wanted);
    let one = |benchmark: &Value| {
        let name = named(benchmark, &["run_name", "name"])?;
        let unit = benchmark["time_unit"].as_str().unwrap_or("ns");
        let time = |key: &str| picoseconds(number(&benchmark[key])?, unit);
        let mut values = Vec::new();
        let wall = time("real_time").ok_or_else(|| missing(name, "time"))?;
        values.push((TIME.to_owned(), wall));
        values.extend(time("cpu_time").map(|cpu| (CPU.to_owned(), cpu)));
        recording(&run, name, &values)
    };
    checked(measured.map(one).collect::<Result<_>>()?)
}

/// The results of JMH: times as they are, and throughput as the time of one operation.
pub fn jmh(text: &str, run: &Run) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let one = |benchmark: &Value| {
        let name = named(benchmark, &["benchmark"])?;
        let parameters: BTreeMap<_, _> =
            benchmark["params"].as_object().into_iter().flatten().collect();
        let parameters = parameters.into_iter().map(|(key, value)| {
            format!(":{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        let name = format!("{name}{}", parameters.collect::<String>());
        let metric = &benchmark["primaryMetric"];
        let score = number(&metric["score"]).ok_or_else(|| missing(&name, "score"))?;
        let unit = metric["scoreUnit"].as_str().ok_or_else(|| missing(&name, "unit"))?;
        recording(run, &name, &[measured(score, unit)])
    };
    checked(value.as_array().into_iter().flatten().map(one).collect::<Result<_>>()?)
}

/// The results that github-action-benchmark takes: names, values, units.
pub fn action(text: &str, run: &Run) -> Result<Vec<Facts>> {
    checked(benches(&json(text)?, run)?)
}

fn benches(all: &Value, run: &Run) -> Result<Vec<Facts>> {
    let one = |bench: &Value| {
        let name = named(bench, &["name"])?;
        let value = number(&bench["value"]).ok_or_else(|| missing(name, "value"))?;
        let unit = bench["unit"].as_str().ok_or_else(|| missing(name, "unit"))?;
        recording(run, name, &[measured(value, unit)])
    };
    all.as_array().into_iter().flatten().map(one).collect()
}

/// The beginning of the file in which github-action-benchmark keeps a history.
pub const HISTORY: &str = "window.BENCHMARK_DATA";

/// The history of github-action-benchmark: results of many commits.
pub fn history(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let object = text.split_once('=').map_or(text, |(_, object)| object);
    let value = json(object.trim().trim_end_matches(';'))?;
    let mut all = Vec::new();
    let suites = value["entries"].as_object().into_iter().flatten();
    for entry in suites.flat_map(|(_, entries)| entries.as_array().into_iter().flatten()) {
        let mut run = run.clone();
        let commit = &entry["commit"];
        run.commit = clean_name(commit["id"].as_str().unwrap_or(&run.commit));
        started(&mut run, commit["timestamp"].as_str(), limits);
        all.extend(benches(&entry["benches"], &run)?);
    }
    checked(all)
}

/// The name, the number of iterations, and the pairs of value and unit of a line of `go test
/// -bench`.
pub fn go_line(line: &str) -> Option<(&str, Vec<(f64, &str)>)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| name.starts_with("Benchmark"))?;
    words.next()?.parse::<u64>().ok()?;
    let words: Vec<&str> = words.collect();
    let pairs = words.chunks_exact(2).map(|pair| Some((pair[0].parse::<f64>().ok()?, pair[1])));
    let pairs = pairs.collect::<Option<Vec<_>>>()?;
    (!pairs.is_empty()).then_some((name, pairs))
}

/// The text that `go test -bench` prints.
pub fn go(text: &str, run: &Run) -> Result<Vec<Facts>> {
    let (mut package, mut all) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("pkg:") {
            package = format!("{}.", named.trim());
        }
        let Some((name, pairs)) = go_line(line) else { continue };
        // The number of processors is not part of the name.
        let name = match name.rsplit_once('-') {
            Some((stem, many)) if many.bytes().all(|byte| byte.is_ascii_digit()) => stem,
            _ => name,
        };
        let value = |(value, unit): (f64, &str)| match unit {
            "B/op" => ("bytes-per-op".to_owned(), value),
            "allocs/op" => ("allocations-per-op".to_owned(), value),
            unit => measured(value, unit),
        };
        let values: Vec<_> = pairs.into_iter().map(value).collect();
        all.push(recording(run, &format!("{package}{name}"), &values)?);
    }
    checked(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (String, Vec<(String, u64)>);

    fn rows(all: Result<Vec<Facts>>) -> Vec<Row> {
        let one = |facts: Facts| {
            let names = facts.events.iter().map(|event| event.name.clone());
            (facts.run.benchmark.clone(), names.zip(facts.total.clone()).collect())
        };
        all.unwrap().into_iter().map(one).collect()
    }

    fn is(name: &str, values: &[(&str, u64)]) -> Row {
        let values = values.iter().map(|(event, value)| ((*event).to_owned(), *value));
        (name.to_owned(), values.collect())
    }

    #[test]
    fn hyperfine_and_pytest_tell_seconds() {
        let run = Run::default();
        let text = r#"{"results":[{"command":"sleep 1","mean":1.5,"median":1.25,"user":0.5,
            "system":0.25,"times":[1.0],"parameters":{"n":"1"}},
            {"command":"named","median":2,"parameters":{"n":"7"}}]}"#;
        let wanted = [
            is("sleep 1", &[(TIME, 1_250_000_000_000), (CPU, 750_000_000_000)]),
            is("named n=7", &[(TIME, 2_000_000_000_000)]),
        ];
        assert_eq!(rows(hyperfine(text, &run)), wanted);
        let text = r#"{"machine_info":{},"commit_info":{"id":"abc123","branch":"main"},
            "datetime":"2024-05-06T07:08:09.123456+00:00",
            "benchmarks":[{"name":"test_a","fullname":"t.py::test_a","stats":{"median":1e-6}}]}"#;
        let all = pytest(text, &run, &Limits::default()).unwrap();
        let read = &all[0].run;
        assert_eq!([read.commit.as_str(), &read.branch], ["abc123", "main"]);
        assert_eq!(read.started, 1_714_979_289);
        assert_eq!(rows(Ok(all)), [is("t.py::test_a", &[(TIME, 1_000_000)])]);
    }

    #[test]
    fn google_benchmark_has_medians_or_every_repetition() {
        let limits = Limits::default();
        let one = |kind: &str, time: f64| {
            format!(
                "{{\"name\":\"BM_x/8_{kind}\",\"run_name\":\"BM_x/8\",\"run_type\":\"{}\",\
                 \"aggregate_name\":\"{kind}\",\"real_time\":{time},\"cpu_time\":1.0,\
                 \"time_unit\":\"us\"}}",
                if kind.is_empty() { "iteration" } else { "aggregate" }
            )
        };
        let text =
            |all: &[String]| format!("{{\"context\":{{}},\"benchmarks\":[{}]}}", all.join(","));
        let each = |time: u64| is("BM_x/8", &[(TIME, time), (CPU, 1_000_000)]);
        let read = |text: &str| rows(google(text, &Run::default(), &limits));
        let runs = [one("", 2.0), one("", 3.0)];
        assert_eq!(read(&text(&runs)), [each(2_000_000), each(3_000_000)]);
        let more = [runs.as_slice(), &[one("mean", 9.0), one("median", 2.5), one("cv", 0.1)]];
        assert_eq!(read(&text(&more.concat())), [each(2_500_000)]);
    }

    #[test]
    fn jmh_s_throughput_is_the_time_of_an_operation() {
        let text = r#"[{"benchmark":"org.X.a","mode":"avgt","params":{"n":"10","k":"z"},
            "primaryMetric":{"score":1.5,"scoreUnit":"us/op"}},
            {"benchmark":"org.X.b","mode":"thrpt","primaryMetric":{"score":4.0,"scoreUnit":"ops/ms"}}]"#;
        let wanted =
            [is("org.X.a:k=z:n=10", &[(TIME, 1_500_000)]), is("org.X.b", &[(TIME, 250_000_000)])];
        assert_eq!(rows(jmh(text, &Run::default())), wanted);
    }

    #[test]
    fn github_action_benchmark_has_units_and_a_history() {
        let run = Run::default();
        let text = r#"[{"name":"a","unit":"ns/iter","value":254},{"name":"b","unit":"Percent","value":"12.5"}]"#;
        let wanted = [is("a", &[(TIME, 254_000)]), is("b", &[("thousandths-of-Percent", 12_500)])];
        assert_eq!(rows(action(text, &run)), wanted);
        let text = r#"window.BENCHMARK_DATA = {"lastUpdate":1,"entries":{"Rust":[
            {"commit":{"id":"45d7","timestamp":"2019-11-10T00:06:58+09:00"},"date":1,"tool":"cargo",
             "benches":[{"name":"a","value":254,"unit":"ns/iter"}]}]}};"#;
        let all = history(text, &run, &Limits::default()).unwrap();
        assert_eq!((all[0].run.commit.as_str(), all[0].run.started), ("45d7", 1_573_312_018));
        assert_eq!(rows(Ok(all)), [is("a", &[(TIME, 254_000)])]);
    }

    #[test]
    fn go_s_lines_have_pairs_of_value_and_unit() {
        let text = "goos: linux\npkg: example.com/p\nBenchmarkX/a-b-8   \t 1000\t 1234.5 ns/op\t 56 B/op\t 7 allocs/op\n\
            BenchmarkX/a-b-8 1000 1300 ns/op\nBenchmarkLog\n    x_test.go:7: text\nPASS\nok  \texample.com/p\t1.2s\n";
        let name = "example.com/p.BenchmarkX/a-b";
        let wanted = [
            is(name, &[(TIME, 1_234_500), ("bytes-per-op", 56), ("allocations-per-op", 7)]),
            is(name, &[(TIME, 1_300_000)]),
        ];
        assert_eq!(rows(go(text, &Run::default())), wanted);
        assert!(go("BenchmarkX 10\n", &Run::default()).is_err());
    }
}
