//! Countable faults of a Rust file: long files, long functions, many parameters, wide lines.
//! Sources are as rustfmt leaves them, so indentation says where an item ends.

/// Lines of a file before its tests.
pub const LONGEST_FILE: usize = 600;
/// Lines of a function, its signature included.
const LONGEST_FUNCTION: usize = 60;
const MOST_PARAMETERS: usize = 5;
const WIDEST: usize = 100;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A file that is too long.
    File,
    /// A function that is too long.
    Function,
    /// A function with too many parameters.
    Parameters,
    /// A line that is too wide.
    Wide,
}

impl Kind {
    /// Every kind, in the order of the columns of a budget.
    pub const ALL: [Self; 4] = [Self::File, Self::Function, Self::Parameters, Self::Wide];

    /// The rule that a fault of this kind breaks.
    pub fn rule(self) -> String {
        match self {
            Self::File => format!("files have at most {LONGEST_FILE} lines"),
            Self::Function => format!("functions have at most {LONGEST_FUNCTION} lines"),
            Self::Parameters => format!("functions have at most {MOST_PARAMETERS} parameters"),
            Self::Wide => format!("lines have at most {WIDEST} columns"),
        }
    }
}

/// The faults of a file: the kind, and the line it begins at, from 1.
pub fn faults(text: &str) -> Vec<(Kind, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let end = tests_begin(&lines);
    let mut out = Vec::new();
    if end > LONGEST_FILE {
        out.push((Kind::File, 1));
    }
    for (index, line) in lines[..end].iter().enumerate() {
        if line.chars().count() > WIDEST {
            out.push((Kind::Wide, index + 1));
        }
        if let Some(signature) = signature(&lines[..end], index) {
            if parameters(&signature) > MOST_PARAMETERS {
                out.push((Kind::Parameters, index + 1));
            }
            if function_lines(&lines[..end], index) > LONGEST_FUNCTION {
                out.push((Kind::Function, index + 1));
            }
        }
    }
    out
}

/// The number of lines of a file before its test module.
pub fn before_tests(text: &str) -> usize {
    tests_begin(&text.lines().collect::<Vec<_>>())
}

/// The number of lines before the test module.
fn tests_begin(lines: &[&str]) -> usize {
    lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len())
}

/// The signature of the function that begins at line `at`, up to its body, on one line.
fn signature(lines: &[&str], at: usize) -> Option<String> {
    let mut words = lines[at].split_whitespace();
    let known = ["const", "async", "unsafe", "extern", "\"C\"", "\"C-unwind\""];
    let is_fn = words
        .find(|word| !word.starts_with("pub") && *word != "in" && !known.contains(word))
        .is_some_and(|word| word == "fn");
    if !is_fn {
        return None;
    }
    let mut text = String::new();
    for line in &lines[at..] {
        text.push_str(line.trim());
        text.push(' ');
        if line.ends_with('{') || line.ends_with('}') || line.ends_with(';') {
            break;
        }
    }
    Some(text)
}

/// Returns the number of parameters of a signature, a receiver left out.
fn parameters(signature: &str) -> usize {
    let Some(open) = parenthesis(signature) else { return 0 };
    let (mut depth, mut count, mut some) = (0, 0, false);
    let mut list = String::new();
    for c in signature[open + 1..].chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            '<' => depth += 1,
            ')' if depth == 0 => break,
            // The arrow of a function type closes nothing.
            '>' if list.ends_with('-') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                count += usize::from(some);
                some = false;
                list.push(c);
                continue;
            }
            _ => {}
        }
        some |= !c.is_whitespace();
        list.push(c);
    }
    count += usize::from(some);
    let first = list.split(',').next().unwrap_or_default().trim();
    let receiver = first.ends_with("self") || first.starts_with("self:") || first == "mut self";
    count - usize::from(receiver)
}

/// The parenthesis that opens the parameters: the first that is not among the generics.
fn parenthesis(signature: &str) -> Option<usize> {
    let mut depth = 0i32;
    let mut last = ' ';
    for (at, c) in signature.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if last != '-' => depth -= 1,
            '(' if depth == 0 && !signature[..at].trim_end().ends_with("pub") => return Some(at),
            _ => {}
        }
        last = c;
    }
    None
}

/// The lines from a function's first to the brace that closes it, which has the same indentation.
fn function_lines(lines: &[&str], at: usize) -> usize {
    let indent = lines[at].len() - lines[at].trim_start().len();
    let closing = format!("{}}}", " ".repeat(indent));
    for (length, line) in lines[at..].iter().enumerate() {
        let ends =
            *line == closing || (length == 0 && (line.ends_with('}') || line.ends_with(';')));
        // A declaration without a body.
        if ends || (line.starts_with(&closing[..indent]) && line.trim_start() == ";") {
            return length + 1;
        }
        if line.ends_with(';') && line.len() - line.trim_start().len() == indent {
            return length + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        faults(text).into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let body = "    work();\n".repeat(58);
        assert_eq!(kinds(&format!("fn short() {{\n{body}}}\n")), []);
        let long = format!("pub(crate) fn long() {{\n{body}    more();\n}}\n");
        assert_eq!(kinds(&long), [Kind::Function]);
        let in_impl = long.replace("\n", "\n    ");
        assert_eq!(kinds(&format!("impl X {{\n    {in_impl}\n}}\n")), [Kind::Function]);
        assert_eq!(kinds(&format!("#[cfg(test)]\n{long}")), []);
    }

    #[test]
    fn parameters_are_counted_without_the_receiver() {
        let of = |text: &str| parameters(&signature(&[text], 0).expect("a function"));
        assert_eq!(of("fn none() {"), 0);
        assert_eq!(of("fn f<F: Fn(u8, u8) -> u8>(&mut self, a: [u8; 2], b: (u8, u8)) {"), 2);
        assert_eq!(of("pub(super) fn f(a: HashMap<u8, u8>, b: fn(u8, u8) -> u8, c: u8,) {"), 3);
        let six = "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}";
        assert_eq!(kinds(six), [Kind::Parameters]);
        assert_eq!(kinds(&six.replace("fn f(a: u8", "fn f(self")), []);
    }

    #[test]
    fn wide_lines_are_counted_in_characters() {
        assert_eq!(kinds(&"é".repeat(100)), []);
        assert_eq!(kinds(&"é".repeat(101)), [Kind::Wide]);
    }
}
