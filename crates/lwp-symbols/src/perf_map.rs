//! `/tmp/perf-PID.map`: the list that runtimes keep of the code they generate.

use lwp_profile::RecordedSymbol;

/// Reads the lines `START SIZE NAME` (both numbers hexadecimal); other lines are passed over.
pub fn parse(pid: i32, text: &[u8]) -> Vec<RecordedSymbol> {
    String::from_utf8_lossy(text).lines().filter_map(|line| symbol(pid, line)).collect()
}

fn symbol(pid: i32, line: &str) -> Option<RecordedSymbol> {
    let mut words = line.splitn(3, ' ');
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let address = number(words.next()?)?;
    let size = number(words.next()?)?;
    let name = words.next()?.trim();
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
}
