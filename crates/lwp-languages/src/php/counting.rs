//! The places at which the calls of PHP's functions can be counted.
//!
//! The evaluator is entered for what C calls, and for a generator each time that it goes on. It
//! executes other calls itself, by three operations, whose function is the one of the call that has
//! been prepared. The code of an operation has an address in a table that nothing exports; a second
//! table says which entries are an operation's. Both are found in the file by their content.
//!
//! Promise: R113

use object::read::ReadRef;

use crate::Memory;
use crate::file::File;
use crate::functions::Function;
use crate::php::{Identity, USER, at, described, named};

/// Symbols that are looked for beside those of samples.
pub const NAMES: [&str; 4] = [
    "zend_execute_ex",
    "zend_observer_fcall_op_array_extension",
    "destroy_op_array",
    "zend_deactivate",
];

/// An engine whose calls can be counted. Code is named by its offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The instruction of the evaluator at which the first argument is known to be a frame.
    pub entry: u64,
    /// The address of `entry` in the file.
    pub entry_address: u64,
    /// The first instructions of the operations that call, at which r14 has the frame.
    pub operations: Vec<u64>,
    /// The first instruction of what ends a function, which is its first argument.
    pub end: u64,
    /// The first instruction of what ends all of them.
    pub end_of_all: u64,
    /// Addresses of the operations, by the table.
    operations_at: [u64; 2],
    /// The evaluator, and the word that has its address unless an extension has another one.
    evaluator: u64,
    hook: u64,
    /// Four bytes that are -1 unless an extension looks at calls.
    observers: u64,
}

/// Numbers of operations that call: any function, one in PHP, one by its name.
const OPERATIONS: [usize; 3] = [60, 130, 131];
/// The last operation that the table must have.
const LAST: usize = 131;
/// Entries of the table for each of them: it has four forms, by whether its result is used, and
/// whether calls are looked at.
const FORMS: u32 = 0x208_0000;
/// Beginning of the table of operations: the first has one form, the second twenty-five.
const BEGINNING: [u32; 2] = [0, 0x3_0001];
/// Bytes of the evaluator among which the frame's first word is loaded.
const NEAR: u64 = 0x80;

/// A part of a function's flags: it stands for another one, which `__call` is called for.
const TRAMPOLINE: u32 = 1 << 18;
/// Methods that the evaluator executes in place of others, without any of those operations.
const STANDING_IN: [&str; 2] = ["__call", "__callstatic"];
/// Instructions of a function that are looked at.
const INSTRUCTIONS: u64 = 1 << 12;

impl Counted {
    /// The engine in `file`; `None` where its calls cannot be counted.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        super::Interpreter::of(file)?;
        let evaluator = file.at("execute_ex")?;
        // mov r15, [rdi]
        let code = file.bytes(evaluator, NEAR)?;
        let near = code.windows(3).position(|bytes| bytes == [0x4c, 0x8b, 0x3f])?;
        let entry_address = evaluator + near as u64;
        let (operations, operations_at) = operations(file)?;
        let offset = |name: &str| file.offset(file.at(name)?);
        Some(Self {
            entry: file.offset(entry_address)?,
            entry_address,
            operations: operations.into_iter().map(|it| file.offset(it)).collect::<Option<_>>()?,
            end: offset("destroy_op_array")?,
            end_of_all: offset("zend_deactivate")?,
            operations_at,
            evaluator,
            hook: file.at("zend_execute_ex")?,
            observers: file.at("zend_observer_fcall_op_array_extension")?,
        })
    }

    /// The function at `at`, in a process where addresses are `bias` higher; `None` where there is
    /// none, or one whose calls cannot be counted.
    pub fn function(&self, bias: u64, at: u64, memory: &mut dyn Memory) -> Option<Function> {
        let own = memory.word(self.hook.wrapping_add(bias))? == self.evaluator.wrapping_add(bias)
            && memory.half(self.observers.wrapping_add(bias))? == u32::MAX;
        let kind = memory.byte(at.checked_add(at::KIND)?)?;
        let flags = memory.half(at.checked_add(at::FLAGS)?)?;
        if !own || kind != USER || flags & TRAMPOLINE != 0 {
            return None;
        }
        let identity = Identity::of(at, kind, memory)?;
        let function = described(&identity, memory).filter(|_| identity.is_named())?;
        let name = named(&function.name).to_ascii_lowercase();
        let whole = !STANDING_IN.contains(&name.as_str());
        (whole && self.is_interpreted(bias, at, memory)?).then_some(function)
    }

    /// Returns whether the evaluator executes all of a function's instructions: none of them has
    /// been compiled, or is counted by the compiler.
    fn is_interpreted(&self, bias: u64, at: u64, memory: &mut dyn Memory) -> Option<bool> {
        let first = memory.word(at.checked_add(at::INSTRUCTIONS)?)?;
        let count = u64::from(memory.half(at.checked_add(at::COUNT)?)?).min(INSTRUCTIONS);
        let [from, to] = self.operations_at;
        for index in 0..count {
            let handler = memory.word(first.checked_add(index * at::INSTRUCTION_SIZE)?)?;
            if !(from..=to).contains(&handler.wrapping_sub(bias)) {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// The addresses of the operations that call, and the first and the last of all operations.
fn operations<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<(Vec<u64>, [u64; 2])> {
    let starts = starts(file.constants()?)?;
    let words = file.relative_words();
    let all = || starts.iter().flat_map(|start| [8 * start, 8 * (start + 1)]);
    let fits =
        |base: u64| all().all(|at| words.get(&(base + at)).is_some_and(|code| calls(file, *code)));
    let mut bases = words.keys().copied().filter(|base| fits(*base));
    let base = bases.next()?;
    if bases.next().is_some() {
        return None;
    }
    let mut found: Vec<u64> = all().filter_map(|at| words.get(&(base + at)).copied()).collect();
    found.sort_unstable();
    found.dedup();
    let run = (0..).map_while(|index| words.get(&(base + 8 * index)));
    let range = run
        .take(usize::from(u16::MAX))
        .fold([u64::MAX, 0], |[least, most], code| [least.min(*code), most.max(*code)]);
    Some((found, range))
}

/// The indices of the operations' first forms, which say what they are.
fn starts(constants: &[u8]) -> Option<[u64; 3]> {
    let word = |at: usize| {
        let bytes = constants.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let is = |at: &usize| {
        let of = |operation: usize| word(at + 4 * operation);
        [of(0), of(1)] == BEGINNING.map(Some)
            && OPERATIONS.iter().all(|it| of(*it).is_some_and(|it| it & !0xffff == FORMS))
            && of(LAST + 1).is_some()
    };
    let mut all = (0..constants.len()).step_by(4).filter(is);
    let at = all.next().filter(|_| all.next().is_none())?;
    let index = |operation: usize| word(at + 4 * operation).map(|it| u64::from(it & 0xffff));
    let [any, own, by_name] = OPERATIONS.map(index);
    Some([any?, own?, by_name?])
}

/// Returns whether the code at an address begins as that of an operation that calls, and leaves rcx
/// and r11 alone: with `mov reg, [r14 + 8]`.
fn calls<'d, R: ReadRef<'d>>(file: &File<'d, R>, address: u64) -> bool {
    let Some(&[prefix, 0x8b, form, 8]) = file.bytes(address, 4) else { return false };
    // The register is rcx or r11.
    let borrowed = matches!((prefix, form), (0x49, 0x4e) | (0x4d, 0x5e));
    matches!(prefix, 0x49 | 0x4d) && form & 0xc7 == 0x46 && !borrowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_operations_is_known_by_its_content() {
        let mut words = vec![7u32, 0, 0x3_0001];
        words.resize(3 + LAST + 4, 5);
        for (operation, start) in [(60, 1345), (130, 2191), (131, 2195)] {
            words[1 + operation] = FORMS | start;
        }
        let bytes = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        assert_eq!(starts(&bytes(&words)), Some([1345, 2191, 2195]));
        // Two of them, one that ends, one that says something else.
        assert_eq!(starts(&bytes(&[&words[..], &words].concat())), None);
        assert_eq!(starts(&bytes(&words[..LAST])), None);
        words[1 + 130] = 2191;
        assert_eq!(starts(&bytes(&words)), None);
    }
}
