//! Functions that samples have met.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// An interpreted language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Python, executed by CPython.
    Python,
    /// Ruby, executed by its own virtual machine.
    Ruby,
    /// PHP, executed by the Zend engine.
    Php,
    /// Perl 5.
    Perl,
    /// Lua, executed by PUC-Rio's implementation or LuaJIT.
    Lua,
    /// Java, and what else becomes its bytecodes, interpreted by HotSpot.
    Java,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Python, Self::Ruby, Self::Php, Self::Perl, Self::Lua, Self::Java];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::Lua => "lua",
            Self::Java => "java",
        }
    }
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// The language that it is written in.
    pub language: Language,
    /// Its name, qualified as far as the interpreter knows that.
    pub name: Arc<str>,
    /// Its source file, or what stands for one, as `<string>`.
    pub file: Arc<str>,
    /// The line of its declaration; of Perl's functions, that of the first statement.
    pub line: u32,
}

/// Functions of all processes, each once.
#[derive(Debug, Default)]
pub struct Functions {
    all: Vec<Function>,
    numbers: FxHashMap<Function, u32>,
}

impl Functions {
    /// The function with this number.
    pub fn get(&self, number: u32) -> Option<&Function> {
        self.all.get(number as usize)
    }

    /// The number of a function.
    pub fn number(&mut self, function: Function) -> u32 {
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(function.clone()).or_insert(next);
        if number == next {
            self.all.push(function);
        }
        number
    }
}

/// A function at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number among [`Functions`].
    pub function: u32,
    /// The line; that of the declaration where it is not known.
    pub line: u32,
}

/// Most bytes of a name and of a path.
const LONGEST: u64 = 1 << 12;

/// The text of `length` bytes at `address`; `None` where it is too long for a name, or cannot be
/// read.
pub fn text(address: u64, length: u64, memory: &mut dyn crate::Memory) -> Option<String> {
    if length > LONGEST {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read(address, &mut bytes).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The text at `address` up to a zero.
pub fn text_to_zero(address: u64, memory: &mut dyn crate::Memory) -> Option<String> {
    let mut bytes = Vec::new();
    for at in 0..LONGEST {
        match memory.byte(address.checked_add(at)?)? {
            0 => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            byte => bytes.push(byte),
        }
    }
    None
}
