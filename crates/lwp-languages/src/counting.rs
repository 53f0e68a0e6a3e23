//! Evaluators whose calls can be counted, behind one face.

use std::fs::File as SystemFile;
use std::path::Path;

use object::read::ReadCache;

use crate::Memory;
use crate::file::File;
use crate::functions::{Function, Language};
use crate::{php, python};

/// A file with an evaluator whose calls can be counted. Code is named by its offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// CPython.
    Python(python::counting::Counted),
    /// PHP's engine.
    Php(php::counting::Counted),
}

/// An instruction that is executed once a call, and where it has what is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The instruction.
    pub at: u64,
    /// A register.
    pub base: Base,
    /// The register leads there by the word at this distance, or else it does itself.
    pub through: Option<i32>,
    /// The distance of what is called.
    pub value: i32,
}

/// A register that leads to what is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The first argument's.
    First,
    /// The second one's.
    Second,
    /// r14.
    R14,
}

impl Counted {
    /// The evaluator in the file at `path`, of one of these `languages`.
    pub fn open(path: &Path, languages: &[Language]) -> Option<Self> {
        let cache = ReadCache::new(SystemFile::open(path).ok()?);
        let names = [&python::NAMES[..], &php::NAMES, &php::counting::NAMES];
        let file = File::parse(&cache, &names)?;
        languages.iter().find_map(|language| match language {
            Language::Python => python::counting::Counted::of(&file).map(Self::Python),
            Language::Php => php::counting::Counted::of(&file).map(Self::Php),
            _ => None,
        })
    }

    /// An instruction by its offset in the file, and by its address there.
    pub fn place(&self) -> (u64, u64) {
        match self {
            Self::Python(it) => (it.entry, it.entry_address),
            Self::Php(it) => (it.entry, it.entry_address),
        }
    }

    /// The instructions that are executed once a call, one of them each.
    pub fn entries(&self) -> Vec<Entry> {
        match self {
            Self::Python(it) => {
                let base = if it.first_argument { Base::First } else { Base::Second };
                vec![Entry { at: it.entry, base, through: None, value: it.code }]
            }
            Self::Php(it) => {
                let value = php::FUNCTION_AT;
                let entry = Entry { at: it.entry, base: Base::First, through: None, value };
                let through = Some(php::PREPARED_AT);
                let own = it.operations.iter();
                let own = own.map(|at| Entry { at: *at, base: Base::R14, through, value });
                std::iter::once(entry).chain(own).collect()
            }
        }
    }

    /// The first instruction of what ends the function that is its first argument.
    pub fn end(&self) -> u64 {
        match self {
            Self::Python(it) => it.end,
            Self::Php(it) => it.end,
        }
    }

    /// The first instruction of what ends all functions.
    pub fn end_of_all(&self) -> Option<u64> {
        match self {
            Self::Python(_) => None,
            Self::Php(it) => Some(it.end_of_all),
        }
    }

    /// The word that must have the evaluator's address: it is this far from what the word at the
    /// first distance from the first argument points to.
    pub fn evaluator_at(&self) -> Option<[i32; 2]> {
        match self {
            Self::Python(it) => it.evaluator_at,
            Self::Php(_) => None,
        }
    }

    /// The function that `at` is, in a process where addresses are `bias` higher; `None` where
    /// there is none, or one whose calls cannot be counted.
    pub fn function(&self, bias: u64, at: u64, memory: &mut dyn Memory) -> Option<Function> {
        match self {
            Self::Python(it) => it.function(bias, at, memory),
            Self::Php(it) => it.function(bias, at, memory),
        }
    }
}
