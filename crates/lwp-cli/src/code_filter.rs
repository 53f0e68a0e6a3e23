//! The code that `lwp record` samples: `--filter` and `--interval-ip`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lwp_symbols::{
    Inlined, NamedFunction, functions_like, functions_named, inlined_named, similar_names,
};
use lwp_terminal::escape::printable;
use lwp_vcpu::{CodePlace, SampledCode, Target};
use wildmatch::WildMatch;

use crate::args::usage_error;
use crate::failure::{Failure, OWN_FAILURE};
use crate::program;

const REMEDY: &str = "write a function's name, NAME@FILE, or addresses as in 0x401000..0x4010ff; `!` before it inverts";

/// Parses the value of `--filter`, which applies to the program of `target`.
pub fn filter(
    text: &str,
    target: &Target,
    debug_roots: &[PathBuf],
) -> Result<SampledCode, Failure> {
    let (text, inverted) = sign(text);
    let place = match text.split_once("..") {
        Some((base, limit))
            if is_bound(base) && is_bound(limit) && base.len() + limit.len() > 0 =>
        {
            addresses(base, limit)?
        }
        _ => function(text, &Places::of(target, debug_roots))?,
    };
    Ok(SampledCode { place, inverted })
}

/// Parses the value of `--interval-ip`.
pub fn interval_ip(text: &str) -> Result<SampledCode, Failure> {
    let (bounds, inverted) = sign(text);
    let (base, limit) = bounds.split_once(',').ok_or_else(|| {
        usage_error(
            format!("'{text}' is no range of addresses"),
            "write BASE,LIMIT, as in --interval-ip 0x401000,0x4010ff; `!` before it inverts",
        )
    })?;
    Ok(SampledCode { place: addresses(base, limit)?, inverted })
}

/// The first bytes of the functions that `--within` names.
pub fn functions(
    text: &str,
    target: &Target,
    debug_roots: &[PathBuf],
) -> Result<Vec<CodePlace>, Failure> {
    let places = Places::of(target, debug_roots);
    if !text.contains(['*', '?']) {
        return Ok(vec![function(text, &places)?]);
    }
    let found = matching(text, &places)?;
    match found.is_empty() {
        true => Err(Failure::new(
            OWN_FAILURE,
            format!("no function's name is like '{}'", printable(text)),
        )
        .with_help("`lwp record` and `lwp report` show the names of what is executed")),
        false => Ok(found),
    }
}

/// The functions of the program and of its libraries whose names are like `pattern`.
pub fn matching(pattern: &str, places: &Places<'_>) -> Result<Vec<CodePlace>, Failure> {
    let (pattern, file) =
        pattern.rsplit_once('@').map_or((pattern, None), |(name, file)| (name, Some(file)));
    let files = match file {
        Some(file) => vec![named_file(file, places)?],
        None => std::iter::once(places.program.clone()).chain(places.libraries()).collect(),
    };
    let pattern = WildMatch::new(pattern);
    let mut found = Vec::new();
    for file in files {
        let functions = functions_like(&file, &|name| pattern.matches(name), places.debug_roots)
            .map_err(|error| Failure::io(file.display(), &error))?;
        for it in functions.iter().filter(|it| !it.indirect) {
            found.push(place_in(&file, it)?);
        }
    }
    Ok(found)
}

fn place_in(file: &Path, it: &NamedFunction) -> Result<CodePlace, Failure> {
    let metadata = std::fs::metadata(file).map_err(|error| Failure::io(file.display(), &error))?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    Ok(CodePlace::File { device, inode, first: it.first, last: it.last })
}

fn sign(text: &str) -> (&str, bool) {
    text.strip_prefix('!').map_or((text, false), |rest| (rest.trim_start(), true))
}

/// Returns whether `text` is meant as an address, or as none.
fn is_bound(text: &str) -> bool {
    text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit())
}

/// An address, in hexadecimal with `0x` before it.
fn address(text: &str) -> Result<u64, Failure> {
    let plain = text.trim().replace('_', "");
    let parsed = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => plain.parse(),
    };
    parsed.map_err(|_| usage_error(format!("'{text}' is no address"), REMEDY))
}

fn addresses(base: &str, limit: &str) -> Result<CodePlace, Failure> {
    let base = if base.is_empty() { 0 } else { address(base)? };
    let limit = if limit.is_empty() { u64::MAX } else { address(limit)? };
    match base <= limit {
        true => Ok(CodePlace::Addresses { base, limit }),
        false => Err(usage_error(format!("{base:#x} lies behind {limit:#x}"), REMEDY)),
    }
}

/// Places to look for functions in.
#[derive(Debug)]
pub struct Places<'a> {
    /// The program's file.
    program: PathBuf,
    /// The process, where there is one already.
    pid: Option<i32>,
    debug_roots: &'a [PathBuf],
}

impl<'a> Places<'a> {
    pub fn of(target: &Target, debug_roots: &'a [PathBuf]) -> Self {
        let (program, pid) = match target {
            Target::Launch { program, .. } => (program.clone(), None),
            Target::Attach { pid } => (PathBuf::from(format!("/proc/{pid}/exe")), Some(*pid)),
        };
        Self { program, pid, debug_roots }
    }

    /// The files that the program is known to load, itself left out.
    fn libraries(&self) -> Vec<PathBuf> {
        let Some(pid) = self.pid else { return program::libraries(&self.program) };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let code = maps.lines().filter(|line| {
            line.split(' ').nth(1).is_some_and(|flags| flags.as_bytes().get(2) == Some(&b'x'))
        });
        let mut files: Vec<PathBuf> = code
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .map(|path| lwp_vcpu::profile::path_in_process(pid, Path::new(path)))
            .collect();
        files.dedup();
        let own = std::fs::metadata(&self.program).map(|file| (file.dev(), file.ino())).ok();
        files.retain(|file| {
            std::fs::metadata(file).is_ok_and(|file| Some((file.dev(), file.ino())) != own)
        });
        files
    }

    fn find(&self, file: &Path, name: &str) -> Result<Vec<NamedFunction>, Failure> {
        functions_named(file, name, self.debug_roots)
            .map_err(|error| Failure::io(file.display(), &error))
    }
}

/// The function called `text`, which may be NAME@FILE: the program's own, or else a library's.
fn function(text: &str, places: &Places<'_>) -> Result<CodePlace, Failure> {
    if text.is_empty() {
        return Err(usage_error("the filter names no code", REMEDY));
    }
    let (name, file) =
        text.rsplit_once('@').map_or((text, None), |(name, file)| (name, Some(file)));
    let files = match file {
        Some(file) => vec![named_file(file, places)?],
        None => vec![places.program.clone()],
    };
    let mut found = found_in(&files, name, places)?;
    if found.is_empty() && file.is_none() {
        // The dynamic linker has functions of its own by the names of the C library's.
        let (linker, libraries): (Vec<PathBuf>, _) =
            places.libraries().into_iter().partition(|path| is_linker(path));
        found = found_in(&libraries, name, places)?;
        if found.is_empty() {
            found = found_in(&linker, name, places)?;
        }
    }
    match found.as_slice() {
        [] => Err(unknown(name, &files, places)),
        found => choose(name, found),
    }
}

/// So many names are offered in place of one that is not known.
const OFFERED: usize = 6;

/// Says that no function is named so, and which may have been meant.
fn unknown(name: &str, files: &[PathBuf], places: &Places<'_>) -> Failure {
    let printed = printable(name);
    let failure = Failure::new(OWN_FAILURE, format!("no function is named '{printed}'"));
    let inlined = |file: &PathBuf| inlined_named(file, name, places.debug_roots);
    if let Some(all) = files.iter().map(inlined).find(|all| !all.is_empty()) {
        return all_inlined(&all);
    }
    let similar: Vec<String> =
        files.iter().flat_map(|file| similar_names(file, name, places.debug_roots)).collect();
    let searched = "the program's and its libraries' symbols were searched; name a file with NAME@FILE, or give \
                    addresses as in 0x401000..0x4010ff";
    failure.with_help(match similar.is_empty() {
        true => searched.to_owned(),
        false => format!("similar names are: {}; {searched}", offered(&similar)),
    })
}

/// Says that functions have no code of their own, the likeliest first, and what to sample instead.
fn all_inlined(all: &[Inlined]) -> Failure {
    let names: Vec<String> = all.iter().map(|one| format!("'{}'", one.name)).collect();
    let have = match all {
        [_] => "has no code of its own: the compiler has inlined every copy of it",
        _ => "have no code of their own: the compiler has inlined every copy of them",
    };
    let mut into: Vec<String> = Vec::new();
    for one in all.iter().flat_map(|one| &one.into) {
        if !into.contains(one) {
            into.push(one.clone());
        }
    }
    let failure = Failure::new(OWN_FAILURE, format!("{} {have}", offered(&names)));
    failure.with_help(match into.is_empty() {
        true => "record without a filter; `lwp report --inline` tells such functions apart".into(),
        false => format!(
            "sample what it is inlined into: {}; or record without a filter, and look at it with \
             `lwp report --inline` and `lwp annotate`",
            offered(&into)
        ),
    })
}

/// The first of `names`, and how many there are beside them.
fn offered(names: &[String]) -> String {
    let first = printable(&names[..names.len().min(OFFERED)].join(", "));
    match names.len().saturating_sub(OFFERED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn is_linker(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

/// The file that `NAME@FILE` means: a path, or the name of one that the program loads.
fn named_file(file: &str, places: &Places<'_>) -> Result<PathBuf, Failure> {
    if file.contains('/') {
        return Ok(PathBuf::from(file));
    }
    let libraries = places.libraries();
    let named = |path: &&PathBuf| path.file_name().is_some_and(|name| name == file);
    let found = libraries.iter().chain([&places.program]).find(named);
    found.cloned().ok_or_else(|| {
        let names: Vec<String> = libraries
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        Failure::new(OWN_FAILURE, format!("the program loads no file named '{file}'"))
            .with_help(format!("give its path; it loads: {}", printable(&names.join(", "))))
    })
}

fn found_in(
    files: &[PathBuf],
    name: &str,
    places: &Places<'_>,
) -> Result<Vec<(PathBuf, NamedFunction)>, Failure> {
    let mut found = Vec::new();
    for file in files {
        found.extend(places.find(file, name)?.into_iter().map(|it| (file.clone(), it)));
    }
    Ok(found)
}

/// The only one.
fn choose(name: &str, found: &[(PathBuf, NamedFunction)]) -> Result<CodePlace, Failure> {
    let name = printable(name);
    let listed = || {
        let one = |(file, it): &(PathBuf, NamedFunction)| {
            let file = file.file_name().unwrap_or_default().display();
            format!("{}@{file} ({:#x})", lwp_symbols::demangle(&it.symbol), it.address)
        };
        printable(&found.iter().take(8).map(one).collect::<Vec<_>>().join(", "))
    };
    match found {
        // A library may have an older version of such a function too, which is none.
        all if all.iter().any(|(_, it)| it.indirect) => Err(Failure::new(
            OWN_FAILURE,
            format!("'{name}' stands for a function that is chosen when the program starts"),
        )
        .with_help("record without a filter: `lwp report` shows which one it is")),
        [(file, it)] => place_in(file, it),
        several => {
            Err(Failure::new(OWN_FAILURE, format!("'{name}' can mean {} functions", several.len()))
                .with_help(format!("name one by its symbol, or NAME@FILE: {}", listed())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Target {
        let program = std::env::current_exe().expect("a path");
        Target::Launch { program, argv: Vec::new() }
    }

    fn range(text: &str) -> Option<(u64, u64, bool)> {
        let code = filter(text, &own(), &[]).ok()?;
        match code.place {
            CodePlace::Addresses { base, limit } => Some((base, limit, code.inverted)),
            CodePlace::File { .. } => None,
        }
    }

    #[test]
    fn ranges_are_addresses_with_both_ends() {
        assert_eq!(range("0x10..0x1f"), Some((16, 31, false)));
        assert_eq!(range("!16..31"), Some((16, 31, true)));
        assert_eq!(range("0x7fff_0000.."), Some((0x7fff_0000, u64::MAX, false)));
        assert_eq!(range("..0x7fff"), Some((0, 0x7fff, false)));
        for bad in ["0x20..0x10", "0xg..1", "..", "", "!", "1..x"] {
            assert!(filter(bad, &own(), &[]).is_err(), "{bad}");
        }
        let place = CodePlace::Addresses { base: 1, limit: 2 };
        assert_eq!(interval_ip("1,0x2").ok(), Some(SampledCode { place, inverted: false }));
        assert!(interval_ip("1..2").is_err() && interval_ip("2,1").is_err());
    }

    #[test]
    fn functions_are_the_program_s_or_else_a_library_s() {
        let file = |text: &str| match filter(text, &own(), &[]).map(|code| code.place) {
            Ok(CodePlace::File { inode, .. }) => Ok(inode),
            other => Err(format!("{other:?}")),
        };
        let program = std::env::current_exe().and_then(std::fs::metadata).expect("a file").ino();
        assert_eq!(file("main"), Ok(program));
        assert!(file("getenv").is_ok_and(|inode| inode != program));
        assert_eq!(file("getenv"), file("getenv@libc.so.6"));
        assert!(file("getenv@libm.so.7").is_err_and(|says| says.contains("libc.so.6")));
        assert!(file("memcpy").is_err_and(|says| says.contains("chosen when the program starts")));
        assert!(file("no_such_function").is_err_and(|says| says.contains("no function is named")));
        assert!(file("fmt").is_err_and(|says| says.contains("can mean")));
    }
}
