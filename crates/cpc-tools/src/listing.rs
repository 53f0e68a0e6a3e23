//! The listing of `-h`: what this machine can count.

use std::fmt::Write;

use cpc::{Cpc, EventNames, EventUses};

use crate::sets::events_of;

/// Lines end before this column.
const WIDTH: usize = 76;
/// Lists are indented by this much.
const MARGIN: usize = 17;

/// Lists the events that the counters behind `cpc` can count.
pub fn text(cpc: &Cpc) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "\n\tCPU performance counter interface: {}\n", cpc.name());
    let _ = writeln!(text, "\tevents  [picN=]event[,attribute[N][=value]][,[picN=]event...]\n");
    for (heading, names) in [
        ("Generic Events", EventNames::Generic),
        ("Platform Specific Events", EventNames::Platform),
    ] {
        let lists: Vec<Vec<String>> =
            (0..cpc.counter_count()).map(|pic| events_of(cpc, pic, names)).collect();
        if lists.iter().all(Vec::is_empty) {
            continue;
        }
        let _ = writeln!(text, "\t{heading}:\n");
        write_events(&mut text, &lists);
    }
    write_attributes(&mut text, cpc);
    for missing in cpc.missing() {
        text.push_str(&wrapped("not here:", missing.split(' '), " "));
    }
    text.push('\n');
    text.push_str(&wrapped("", cpc.reference().split(' '), " "));
    text
}

/// One list for each run of counters that can count the same.
fn write_events(text: &mut String, lists: &[Vec<String>]) {
    let mut first = 0;
    while first < lists.len() {
        let same = lists[first..].iter().take_while(|list| **list == lists[first]).count();
        let last = first + same - 1;
        let label =
            if same == 1 { format!("event{first}:") } else { format!("event[{first}-{last}]:") };
        if !lists[first].is_empty() {
            let names = lists[first].iter().map(String::as_str);
            text.push_str(&wrapped(&label, names, " "));
            text.push('\n');
        }
        first += same;
    }
}

/// The attributes that a user can give: not those that the commands give themselves.
fn write_attributes(text: &mut String, cpc: &Cpc) {
    let attributes = cpc.attributes(EventUses::COUNTING);
    let given = attributes
        .into_iter()
        .filter(|name| *name != "picnum" && !name.starts_with("count_sibling_"));
    let all = given.chain(["nouser", "sys"]);
    text.push_str(&wrapped("attributes:", all, " "));
}

/// Words behind a label, over as many lines as it takes.
fn wrapped<'a>(label: &str, words: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut text = format!("{label:>width$} ", width = MARGIN - 1);
    let mut column = text.len();
    let mut start = true;
    for word in words.filter(|word| !word.is_empty()) {
        if !start && column + separator.len() + word.len() > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(MARGIN));
            column = MARGIN;
        } else if !start {
            text.push_str(separator);
            column += separator.len();
        }
        text.push_str(word);
        column += word.len();
        start = false;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_wrapped_with_a_margin() {
        let words = ["abcdefghij"; 12];
        let text = wrapped("event[0-3]:", words.into_iter(), " ");
        assert!(text.starts_with("     event[0-3]: abcdefghij abcdefghij"));
        for line in text.lines() {
            assert!(line.len() <= WIDTH, "{line}");
        }
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with(&format!("{}abc", " ".repeat(MARGIN))), "{text}");
        assert_eq!(text.matches("abcdefghij").count(), 12);
    }

    #[test]
    fn counters_that_count_the_same_share_a_list() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let lists: Vec<Vec<String>> =
            vec![list(&["a", "b"]), list(&["a", "b"]), list(&["c"]), list(&[])];
        let mut text = String::new();
        write_events(&mut text, &lists);
        assert_eq!(text, "     event[0-1]: a b\n\n         event2: c\n\n");
    }
}
