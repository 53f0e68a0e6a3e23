//! The names of a profile's functions.

use std::cell::OnceCell;

use lwp_profile::{FunctionId, Origin, Profile};

use crate::demangle::demangle;

/// Returns a function's name in reports.
pub fn function_name(profile: &Profile, id: FunctionId, demangled: bool) -> String {
    let function = profile.function(id);
    match function.origin {
        Origin::Unknown if function.name.is_empty() => "[unknown]".to_owned(),
        Origin::Unknown => format!("[{}]", function.name),
        _ if function.name.is_empty() => "[inlined]".to_owned(),
        _ if demangled => demangle(&function.name),
        _ => function.name.clone(),
    }
}

/// The names of a profile's functions in reports, each made once. Stacks lead through the same
/// functions again and again.
#[derive(Debug)]
pub struct FunctionNames<'a> {
    profile: &'a Profile,
    demangled: bool,
    names: Vec<OnceCell<String>>,
}

impl<'a> FunctionNames<'a> {
    /// The names of the functions of `profile`.
    pub fn new(profile: &'a Profile, demangled: bool) -> Self {
        Self { profile, demangled, names: vec![OnceCell::new(); profile.functions.len()] }
    }

    /// Returns the name of a function of the profile, as [`function_name`] does.
    pub fn get(&self, id: FunctionId) -> &str {
        self.names[id.index()].get_or_init(|| function_name(self.profile, id, self.demangled))
    }
}
