//! The verdict as JUnit's XML: one suite a benchmark, one case a limit.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{Change, Check, SUSPECTS, Verdict};
use crate::escape::printable;
use crate::number::signed_amount;

/// The verdict in XML.
pub fn render(verdict: &Verdict) -> String {
    let mut report = Report::new("lwp gate");
    for benchmark in &verdict.benchmarks {
        // The library takes escape sequences out, and what looks like one.
        let title = printable(benchmark.title());
        let mut suite = TestSuite::new(title.as_str());
        for check in &benchmark.checks {
            let mut case = TestCase::new(printable(&check.title()), status(check));
            case.set_classname(title.as_str());
            if !check.passes() {
                let suspects = benchmark.changed.iter().take(SUSPECTS);
                let line = |it: &Change| {
                    let delta = signed_amount(&benchmark.event, it.delta());
                    format!("{delta:>16}  {}\n", printable(&it.function))
                };
                let lines = suspects.map(line);
                case.status.set_description(lines.collect::<String>());
            }
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    // Writing to memory does not fail.
    report.to_string().unwrap_or_default()
}

fn status(check: &Check) -> TestCaseStatus {
    if check.passes() {
        return TestCaseStatus::success();
    }
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_type("limit").set_message(check.words());
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn limits_are_cases_and_names_are_escaped() {
        let xml = render(&samples::exceeded());
        assert!(xml.contains("classname=\"a &lt;b&gt; | c\""), "{xml}");
        assert!(xml.contains("name=\"lwp gate\" tests=\"3\""), "{xml}");
        assert!(xml.contains("+50  f&lt;int&gt;(\u{fffd}) [a]\n"), "{xml}");
        assert!(xml.contains("150 of at most 101 (+1%), +50 (+50.00%)"), "{xml}");
        assert!(!xml.contains('\u{1b}'), "{xml}");
    }
}
