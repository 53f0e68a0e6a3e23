//! The sections of the two documents.

use super::Key;

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Document and number.
    pub key: Key,
    /// Its heading.
    pub title: String,
    /// The reason why there is nothing to test, if so.
    pub without_tests: Option<&'static str>,
}

/// The proposal of 2007, which is not part of this tree.
#[rustfmt::skip] // A table: one section a line.
const PROPOSAL: &[(&str, &str, Option<&str>)] = &[
    ("1",       "Introduction",                                 Some("introduction")),
    ("2",       "Requirements",                                 None),
    ("3",       "Overview",                                     None),
    ("4",       "Events and Event Records",                     None),
    ("4.1",     "Instructions Retired",                         None),
    ("4.2",     "Branches Retired",                             None),
    ("4.3",     "DCache misses",                                None),
    ("4.3.1",   "Measuring latency",                            None),
    ("4.3.2",   "Reporting the DCache miss data address",       None),
    ("4.4",     "Other events",                                 Some("ideas for later")),
    ("5.1",     "CPUID Identification",                         None),
    ("5.2.1",   "LWPMSR0 - LWP Feature Enable",                 None),
    ("5.2.2",   "LWPMSR1 - LWPCB",                              None),
    ("5.3",     "LWP Control Instructions",                     None),
    ("5.4",     "LWP Control Block",                            None),
    ("5.5.1",   "Multiple simultaneous events",                 None),
    ("5.5.2",   "State for context switch, SVM, and SMM",       None),
    ("5.5.2.1", "Saving state at thread context switches",      None),
    ("5.5.2.2", "Saving state at SVM worldswitch",              None),
    ("5.5.2.3", "Saving state at SMM entry and exit",           None),
    ("5.5.2.4", "Notes on restoring LWP state",                 None),
    ("5.5.3",   "LWPCB Access",                                 None),
    ("5.5.4",   "Security",                                     None),
    ("5.5.5",   "Interrupts",                                   Some("leaves the method open")),
    ("5.5.6",   "TLB and Cache misses during LWP logging",      None),
];

/// Sections of `docs/lwp.md` in which nothing is said that could be tested.
const UNTESTED: &[(&str, &str)] = &[
    ("8", "a comparison; each line belongs to another section"),
    ("9", "points to the choices"),
    ("12", "sources"),
];

/// All sections: those of the text of `docs/lwp.md` that are not divided further, then the
/// proposal's.
pub fn all(lwp: &str) -> Vec<Section> {
    let headings: Vec<(&str, &str)> = lwp.lines().filter_map(heading).collect();
    let divided = |number: &str| {
        let prefix = format!("{number}.");
        headings.iter().any(|(other, _)| other.starts_with(&prefix))
    };
    let mut sections: Vec<Section> = headings
        .iter()
        .filter(|(number, _)| !divided(number))
        .map(|(number, title)| section("LWP", number, title, untested(number)))
        .collect();
    sections.extend(
        PROPOSAL.iter().map(|(number, title, reason)| section("P07", number, title, *reason)),
    );
    sections
}

fn section(document: &str, number: &str, title: &str, reason: Option<&'static str>) -> Section {
    let key = (document.to_owned(), number.to_owned());
    Section { key, title: title.to_owned(), without_tests: reason }
}

fn untested(number: &str) -> Option<&'static str> {
    UNTESTED.iter().find(|(known, _)| *known == number).map(|(_, reason)| *reason)
}

/// Number and title of a numbered heading.
fn heading(line: &str) -> Option<(&str, &str)> {
    let text = line.strip_prefix("## ").or_else(|| line.strip_prefix("### "))?;
    let (number, title) = text.split_once(' ')?;
    let number = number.trim_end_matches('.');
    let is_number = number.split('.').all(|part| part.parse::<u32>().is_ok());
    is_number.then_some((number, title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_numbers() {
        assert_eq!(heading("## 7. Rules"), Some(("7", "Rules")));
        assert_eq!(heading("### 1.2 Leaf 8000"), Some(("1.2", "Leaf 8000")));
        assert_eq!(heading("## Tests"), None);
        assert_eq!(heading("text"), None);
    }

    #[test]
    fn divided_sections_are_left_to_their_parts() {
        let all = all("## 1. A\n### 1.1 B\n## 10. C\n");
        let numbers: Vec<&str> =
            all.iter().filter(|s| s.key.0 == "LWP").map(|s| s.key.1.as_str()).collect();
        assert_eq!(numbers, ["1.1", "10"]);
    }
}
