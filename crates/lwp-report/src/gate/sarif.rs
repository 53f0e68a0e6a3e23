//! The verdict in SARIF 2.1.0, as code scanning services read it: one result for each limit that is
//! exceeded.

use serde_json::{Value, json};

use super::{Benchmark, Check, Place, SUSPECTS, Verdict};
use crate::escape;
use crate::number::signed_amount;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The one rule there is.
const RULE: &str = "limit-exceeded";

/// The verdict as one document.
pub fn render(verdict: &Verdict) -> String {
    let results: Vec<Value> = verdict
        .benchmarks
        .iter()
        .flat_map(|benchmark| {
            let failed = benchmark.checks.iter().filter(|check| !check.passes());
            failed.map(|check| result(benchmark, check))
        })
        .collect();
    let rule = json!({
        "id": RULE,
        "shortDescription": { "text": "A count is above its limit" },
        "helpUri": concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/gates.md"),
        "defaultConfiguration": { "level": "error" },
    });
    let driver = json!({
        "name": "lwp gate",
        "version": env!("CARGO_PKG_VERSION"),
        "informationUri": env!("CARGO_PKG_REPOSITORY"),
        "rules": [rule],
    });
    let document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{ "tool": { "driver": driver }, "results": results }],
    });
    escape::json(&format!("{document:#}\n"))
}

/// A result stands where its function is; one about everything where the count has grown most.
fn result(benchmark: &Benchmark, check: &Check) -> Value {
    let grown = benchmark.changed.iter().filter(|change| change.delta() > 0);
    let causes: Vec<(&Place, String)> = grown
        .filter_map(|it| {
            let delta = signed_amount(&benchmark.event, it.delta());
            Some((it.place.as_ref()?, format!("{delta} {}", it.function)))
        })
        .take(SUSPECTS)
        .collect();
    let place = check.place.as_ref().or(causes.first().map(|(place, _)| *place));
    let related: Vec<Value> = causes
        .iter()
        .enumerate()
        .map(|(id, (place, words))| {
            let mut location = location(place);
            location["id"] = json!(id + 1);
            location["message"] = json!({ "text": words });
            location
        })
        .collect();
    let (benchmark, title) = (benchmark.title(), check.title());
    json!({
        "ruleId": RULE,
        "ruleIndex": 0,
        "level": "error",
        "message": { "text": format!("{benchmark}: {title}: {}", check.words()) },
        "locations": place.map(location).into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        // The same finding in the next run.
        "partialFingerprints": { "lwpLimit/v1": format!("{benchmark}/{title}") },
    })
}

fn location(place: &Place) -> Value {
    json!({
        "physicalLocation": {
            "artifactLocation": { "uri": encoded(&place.file), "uriBaseId": "%SRCROOT%" },
            "region": { "startLine": place.line.max(1) },
        }
    })
}

/// A path as a relative address.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~,".contains(&byte);
    path.bytes().fold(String::new(), |mut out, byte| {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn limits_that_are_exceeded_are_results_in_their_place() {
        let json: Value = serde_json::from_str(&render(&samples::exceeded())).unwrap();
        let results = json["runs"][0]["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "src/a,b.rs");
            assert_eq!(place["region"]["startLine"], 7);
            assert_eq!(result["relatedLocations"].as_array().unwrap().len(), 1);
        }
        assert_eq!(encoded("a b/c#d.rs"), "a%20b/c%23d.rs");
    }
}
