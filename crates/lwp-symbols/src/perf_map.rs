//! `/tmp/perf-PID.map`: the list that runtimes keep of the code they generate.

use lwp_profile::RecordedSymbol;
use rustc_hash::FxHashMap;

/// The longest name that is kept.
const LONGEST_NAME: usize = 4096;

/// Reads the lines `START SIZE NAME` (both numbers hexadecimal); other lines are passed over. Of
/// several names for the same code the last one counts, as it does for whoever looks one up.
pub fn parse(pid: i32, text: &[u8]) -> Vec<RecordedSymbol> {
    let lines = text.split(|byte| *byte == b'\n');
    let all = lines.filter_map(|line| symbol(pid, &String::from_utf8_lossy(line)));
    // A runtime that generates code again and again writes the same places again.
    let mut places: FxHashMap<(u64, u64), usize> = FxHashMap::default();
    let mut symbols: Vec<RecordedSymbol> = Vec::new();
    for symbol in all {
        let next = symbols.len();
        let at = *places.entry((symbol.address, symbol.size)).or_insert(next);
        match symbols.get_mut(at) {
            Some(known) if known.name == symbol.name => {}
            // Its place in the order is that of the last line.
            Some(_) => {
                places.insert((symbol.address, symbol.size), next);
                symbols.push(symbol);
            }
            None => symbols.push(symbol),
        }
    }
    symbols
}

fn symbol(pid: i32, line: &str) -> Option<RecordedSymbol> {
    let mut words = line.splitn(3, ' ');
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let address = number(words.next()?)?;
    let size = number(words.next()?)?;
    let name = words.next()?.trim();
    let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
    (!name.is_empty()).then(|| RecordedSymbol { pid, address, size, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_passed_over() {
        let symbols = parse(7, b"7f00 20 LazyCompile:~a b.js:1\n\nnonsense\n0x10 0x8 f\n10 8 \n");
        assert_eq!(symbols.len(), 2);
        assert_eq!(symbols[0].name, "LazyCompile:~a b.js:1");
        assert_eq!((symbols[1].address, symbols[1].size, symbols[1].pid), (0x10, 8, 7));
    }

    #[test]
    fn what_is_said_again_is_kept_once() {
        let symbols = parse(7, b"10 8 f\n20 8 g\n10 8 f\n10 8 h\n10 8 f\n\xff 8 x\n30 4 \xff\n");
        let names: Vec<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
        assert_eq!(names, ["f", "g", "h", "f", "\u{fffd}"]);
        let long = format!("10 8 {}\n", "é".repeat(LONGEST_NAME));
        assert_eq!(parse(7, long.as_bytes())[0].name.len(), LONGEST_NAME);
    }
}
