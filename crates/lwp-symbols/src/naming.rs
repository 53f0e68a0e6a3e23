//! The names of a profile's functions.

use std::cell::OnceCell;

use lwp_profile::{Function, FunctionId, Origin, Profile};

use crate::demangle::{Scheme, demangle_as, stable_name_as};

/// Returns a function's name in reports.
pub fn function_name(profile: &Profile, id: FunctionId, demangled: bool) -> String {
    let function = profile.function(id);
    match function.origin {
        Origin::Unknown if function.name.is_empty() => "[unknown]".to_owned(),
        Origin::Unknown => unnamed(profile.module_of(id).name(), &function.name),
        _ if function.name.is_empty() => "[inlined]".to_owned(),
        _ if demangled => demangle_as(&function.name, scheme(profile, function)),
        _ => function.name.clone(),
    }
}

/// Returns the part of a function's name that stays from build to build.
pub fn stable_function_name(profile: &Profile, id: FunctionId) -> String {
    let function = profile.function(id);
    stable_name_as(&function.name, scheme(profile, function))
}

/// The scheme of a function's name: only linkers' symbols have compilers' suffixes, and those of Go
/// have none.
fn scheme(profile: &Profile, function: &Function) -> Scheme {
    let module = profile.modules.get(function.module.index());
    match function.origin {
        Origin::Symbol | Origin::Stub if module.is_none_or(|module| !module.go) => Scheme::Linker,
        _ => Scheme::Foreign,
    }
}

/// The name of a function that nothing names: its module and first address.
pub(crate) fn unnamed(module: &str, address: &str) -> String {
    match module {
        "[generated]" | "[unknown]" | "" => format!("[{address}]"),
        module => format!("{module}+{address}"),
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
