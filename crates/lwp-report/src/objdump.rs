//! Listings in the form of `objdump -d -l -S`, with a column of counts before it.
//!
//! What follows a count and two spaces is objdump's own line, so that whatever reads those reads
//! these.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction};
use iced_x86::{IntelFormatter, MemorySizeOptions, OpKind};

use crate::annotate::{Called, Line, Listing};
use crate::escape::printable;
use crate::number::{grouped, percent};

/// Bytes of an instruction on one line.
const BYTES: usize = 7;
/// The column in which operands begin.
const OPERANDS: u32 = 7;

/// The listing, in AT&T's syntax or in Intel's.
pub fn listing(listing: &Listing, intel: bool) -> String {
    let mut out = String::new();
    let share = percent(listing.total as f64, listing.whole);
    let (name, module) = (printable(&listing.name), printable(&listing.module));
    let _ = writeln!(
        out,
        "# {name} [{module}]: {} {}, {share} of the whole",
        grouped(listing.total),
        listing.event
    );
    let width = listing.lines.iter().map(count_width).max().unwrap_or(0);
    let mut work = Work { out, width, intel, within: (name, 0), opened: false };
    for line in &listing.lines {
        work.line(line);
    }
    work.out
}

fn count_width(line: &Line) -> usize {
    match line {
        Line::Instruction { count, .. } => count.to_string().len(),
        _ => 0,
    }
}

/// A listing in progress.
struct Work {
    out: String,
    width: usize,
    intel: bool,
    /// The function, and where it begins.
    within: (String, u64),
    opened: bool,
}

impl Work {
    fn line(&mut self, line: &Line) {
        match line {
            Line::Within { function } => {
                self.within.0 = printable(function);
                self.opened = false;
            }
            Line::Source { file, line, text, .. } => {
                let _ = writeln!(self.out, "{}:{line}", printable(file));
                if let Some(text) = text {
                    let text = printable(&text.replace('\t', "    "));
                    let _ = writeln!(self.out, "{}", text.trim_end());
                }
            }
            Line::Gap { .. } => self.out.push_str("\t...\n"),
            Line::Instruction { address, bytes, count, calls, .. } => {
                if !self.opened {
                    self.opened = true;
                    self.within.1 = *address;
                    let _ = writeln!(self.out, "\n{address:016x} <{}>:", self.within.0);
                }
                self.instruction(*address, bytes, *count, calls);
            }
        }
    }

    fn instruction(&mut self, address: u64, bytes: &[u8], count: u64, calls: &[Called]) {
        let width = self.width;
        let shown = if count == 0 { String::new() } else { count.to_string() };
        let text = self.text(address, bytes, calls);
        let mut first = true;
        for (piece, at) in bytes.chunks(BYTES).zip((address..).step_by(BYTES)) {
            let hex: String = piece.iter().map(|byte| format!("{byte:02x} ")).collect();
            let _ = match first {
                true => writeln!(self.out, "{shown:>width$}  {at:>8x}:\t{hex:<21}\t{text}"),
                false => writeln!(self.out, "{:>width$}  {at:>8x}:\t{}", "", hex),
            };
            first = false;
        }
        if first {
            let _ = writeln!(self.out, "{shown:>width$}  {address:>8x}:\t{:21}\t{text}", "");
        }
    }

    fn text(&self, address: u64, bytes: &[u8], calls: &[Called]) -> String {
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let instruction = match decoder.can_decode() {
            true => decoder.decode(),
            false => return "(bytes not recorded)".to_owned(),
        };
        if instruction.is_invalid() {
            return "(bad)".to_owned();
        }
        let mut formatter = formatter(self.intel);
        let mut out = String::new();
        if instruction.op_count() == 1 && instruction.op0_kind() == OpKind::NearBranch64 {
            formatter.format_mnemonic(&instruction, &mut out);
            let target = instruction.near_branch64();
            let symbol = self.symbol(&instruction, calls);
            return format!("{out:<6} {target:x}{symbol}");
        }
        formatter.format(&instruction, &mut out);
        if instruction.is_ip_rel_memory_operand() {
            let _ = write!(out, "        # {:x}", instruction.ip_rel_memory_address());
        }
        out
    }

    /// Returns the target of a direct branch, by name, as far as it is known.
    fn symbol(&self, branch: &Instruction, calls: &[Called]) -> String {
        let (name, start) = &self.within;
        if branch.flow_control() == FlowControl::Call {
            let called = match calls {
                [called] => Some(called),
                // The branch leads to the stub.
                _ => calls.iter().find(|called| called.stub),
            };
            return called
                .map_or(String::new(), |called| format!(" <{}>", printable(&called.name)));
        }
        match branch.near_branch64().checked_sub(*start) {
            Some(0) => format!(" <{name}>"),
            Some(offset) => format!(" <{name}+{offset:#x}>"),
            None => String::new(),
        }
    }
}

fn formatter(intel: bool) -> Box<dyn Formatter> {
    let mut formatter: Box<dyn Formatter> = match intel {
        true => Box::new(IntelFormatter::new()),
        false => Box::new(GasFormatter::new()),
    };
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_first_operand_char_index(OPERANDS);
    options.set_space_after_operand_separator(false);
    options.set_rip_relative_addresses(true);
    if intel {
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_memory_size_options(MemorySizeOptions::Always);
    }
    formatter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(&(name, calls): &(&str, u64)) -> Called {
        Called { name: name.to_owned(), calls, ..Called::default() }
    }

    fn instruction(address: u64, bytes: &[u8], count: u64, calls: &[(&str, u64)]) -> Line {
        Line::Instruction {
            address,
            bytes: bytes.to_vec(),
            text: String::new(),
            count,
            beside: None,
            executed: count,
            taken: None,
            arrows: String::new(),
            calls: calls.iter().map(called).collect(),
        }
    }

    #[test]
    fn lines_are_objdump_s_behind_a_count() {
        let source = Line::Source {
            file: "/src/f.c".into(),
            line: 5,
            text: Some("\treturn g();".into()),
            inlined: Vec::new(),
        };
        let lines = vec![
            source,
            instruction(0x1139, &[0x55], 12, &[]),
            instruction(0x113a, &[0x8d, 0x47, 0xff], 12, &[]),
            instruction(0x113d, &[0xe8, 0x02, 0, 0, 0], 12, &[("g", 12)]),
            instruction(0x1142, &[0x75, 0xf5], 1234, &[]),
            instruction(0x1144, &[0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0x80], 0, &[]),
            Line::Gap { bytes: 3 },
            instruction(0x1151, &[0x48, 0x8d, 0x3d, 0x9b, 0x0e, 0, 0], 7, &[]),
        ];
        let of = Listing {
            name: "f".into(),
            module: "m".into(),
            event: "instructions".into(),
            total: 1277,
            whole: 2554,
            exact: true,
            lines,
            ..Listing::default()
        };
        let expected = "\
# f [m]: 1,277 instructions, 50.00% of the whole
/src/f.c:5
    return g();

0000000000001139 <f>:
  12      1139:\t55                   \tpush   %rbp
  12      113a:\t8d 47 ff             \tlea    -0x1(%rdi),%eax
  12      113d:\te8 02 00 00 00       \tcall   1144 <g>
1234      1142:\t75 f5                \tjne    1139 <f>
          1144:\t48 b8 01 00 00 00 00 \tmovabs $0x8000000000000001,%rax
          114b:\t00 00 80 
\t...
   7      1151:\t48 8d 3d 9b 0e 00 00 \tlea    0xe9b(%rip),%rdi        # 1ff3
";
        assert_eq!(listing(&of, false), expected);
        assert!(listing(&of, true).contains("lea    eax,[rdi-0x1]"), "{}", listing(&of, true));
    }
}
