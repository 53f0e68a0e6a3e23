//! The part of a recording that is looked at.

use lwp_profile::{Profile, Thread};

use lwp_symbols::Language;

/// A condition on who executed something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A process.
    Process(i32),
    /// A thread, by its number in the profile.
    Thread(u32),
    /// Threads of this name.
    Named(String),
    /// Functions in this language: the innermost one of a stack.
    Language(Language),
}

impl Who {
    /// The condition that a word of an address stands for.
    pub fn parse(word: &str) -> Option<Self> {
        let (kind, rest) = word.split_at_checked(1)?;
        match kind {
            "p" => rest.parse().ok().map(Self::Process),
            "t" => rest.parse().ok().map(Self::Thread),
            "l" => Language::of_word(rest).map(Self::Language),
            _ => None,
        }
    }

    /// The word that stands for it in an address.
    pub fn word(&self) -> String {
        match self {
            Self::Process(pid) => format!("p{pid}"),
            Self::Thread(number) => format!("t{number}"),
            Self::Named(name) => format!("n{name}"),
            Self::Language(language) => format!("l{}", language.word()),
        }
    }

    /// The condition that stands for this one in another profile, where threads and processes have
    /// other numbers.
    pub fn elsewhere(&self, here: &Profile) -> Self {
        let named = |thread: Option<&Thread>| thread.map(|thread| Self::Named(thread.comm.clone()));
        let other = match self {
            Self::Process(pid) => named(here.threads.iter().find(|thread| thread.pid == *pid)),
            Self::Thread(number) => named(here.threads.get(*number as usize)),
            _ => None,
        };
        other.unwrap_or_else(|| self.clone())
    }

    /// Returns true if a thread and the language of an innermost function meet the condition.
    pub fn meets(&self, number: usize, thread: &Thread, language: Language) -> bool {
        match self {
            Self::Process(pid) => thread.pid == *pid,
            Self::Thread(wanted) => number == *wanted as usize,
            Self::Named(name) => thread.comm == *name,
            Self::Language(wanted) => language == *wanted,
        }
    }
}

/// A part of a recording, and the event that is looked at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Index of the event.
    pub event: usize,
    /// Conditions, all of which are met.
    pub who: Vec<Who>,
    /// From one count of the event to another, each thread's own; only of sampled recordings.
    pub range: Option<(u64, u64)>,
}

impl Selection {
    /// The languages that are asked for.
    pub fn languages(&self) -> impl Iterator<Item = Language> {
        self.who.iter().filter_map(|who| match who {
            Who::Language(language) => Some(*language),
            _ => None,
        })
    }

    /// Returns true if functions in every language are wanted.
    pub fn wants_any_language(&self) -> bool {
        self.languages().next().is_none()
    }
}
