//! The names of a profile's functions.

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
