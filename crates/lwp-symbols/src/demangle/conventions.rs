//! Names that compilers put together after simple rules: OCaml's and Fortran's.
//!
//! Promise: R155

/// `Stdlib.List.map` for OCaml's `camlStdlib__List__map_123`, or `camlStdlib__List.map_123` from
/// 5.2 on: the number differs from build to build. Characters that assemblers do not take are `$`
/// and two hexadecimal digits.
pub fn ocaml(symbol: &str) -> Option<String> {
    // The runtime's own functions in C begin with `caml_`.
    let name = symbol.strip_prefix("caml").filter(|it| it.starts_with(is_capital))?;
    let (module, function) = match name.split_once('.') {
        Some((module, function)) => (module, function),
        None => name.rsplit_once("__").filter(|(module, _)| !module.ends_with('_'))?,
    };
    let stamp = function.rsplit_once('_').filter(|(_, stamp)| is_number(stamp));
    let function = stamp.map_or(function, |(function, _)| function);
    if module.is_empty() || function.is_empty() {
        return None;
    }
    Some(format!("{}.{}", module.replace("__", "."), unescaped(function)))
}

fn is_capital(character: char) -> bool {
    character.is_ascii_uppercase()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Without OCaml's `$` and digits.
fn unescaped(name: &str) -> String {
    let mut parts = name.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(u8::is_ascii_graphic) {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&part[2..]);
            }
            None => {
                out.push('$');
                out.push_str(part);
            }
        }
    }
    out
}

/// `module::procedure` for a procedure of a Fortran module, as GNU (`__module_MOD_procedure`),
/// Intel (`module_mp_procedure_`) and LLVM (`_QMmodulePprocedure`) name it.
pub fn fortran(symbol: &str) -> Option<String> {
    let is_name = |word: &&str| {
        !word.is_empty() && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
    };
    let gnu = symbol.strip_prefix("__").and_then(|rest| rest.split_once("_MOD_"));
    let intel = || symbol.strip_suffix('_').and_then(|rest| rest.split_once("_mp_"));
    match gnu.or_else(intel) {
        Some((module, procedure)) => {
            (is_name(&module) && is_name(&procedure)).then(|| format!("{module}::{procedure}"))
        }
        None => llvm(symbol.strip_prefix("_Q")?),
    }
}

/// Fortran's names have no capital letters: one stands before each part of LLVM's names.
fn llvm(name: &str) -> Option<String> {
    let starts: Vec<usize> =
        name.char_indices().filter(|(_, it)| is_capital(*it)).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    let mut parts = Vec::new();
    for (start, end) in starts.iter().zip(ends) {
        let (kind, part) = name[*start..end].split_at(1);
        // A module, a submodule, a procedure that has others, a procedure.
        if !["M", "S", "F", "P"].contains(&kind) || part.is_empty() {
            return None;
        }
        parts.push(part);
    }
    (starts.first() == Some(&0)).then(|| parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_ocaml_have_their_modules() {
        for (symbol, name) in [
            ("camlStdlib__List__map_123", "Stdlib.List.map"),
            ("camlMain__fun_1234", "Main.fun"),
            ("camlDune__exe__Main__entry", "Dune.exe.Main.entry"),
            ("camlStdlib__List.rev_append_11", "Stdlib.List.rev_append"),
            ("camlStdlib__$40_52", "Stdlib.@"),
            ("camlA__x$zz_1", "A.x$zz"),
        ] {
            assert_eq!(ocaml(symbol).as_deref(), Some(name), "{symbol}");
        }
        for symbol in ["caml_alloc_small", "camlMain", "caml", "camlMain__", "camlA.", "camel__f"] {
            assert_eq!(ocaml(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn procedures_of_fortran_have_their_modules() {
        for (symbol, name) in [
            ("__linear_MOD_solve", "linear::solve"),
            ("__linear_MOD___copy_linear_Matrix", "linear::__copy_linear_Matrix"),
            ("linear_mp_solve_", "linear::solve"),
            ("_QMlinearPsolve", "linear::solve"),
            ("_QMlinearSpartsPsolve", "linear::parts::solve"),
            ("_QMlinearFsolvePinner", "linear::solve::inner"),
            ("_QPsolve", "solve"),
        ] {
            assert_eq!(fortran(symbol).as_deref(), Some(name), "{symbol}");
        }
        for symbol in
            ["solve_", "__MOD_", "___MOD_x", "_QQmain", "_Q", "_QP", "_Qx", "_mp_", "s_mp_add"]
        {
            assert_eq!(fortran(symbol), None, "{symbol}");
        }
    }
}
