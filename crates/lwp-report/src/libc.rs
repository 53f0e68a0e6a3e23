//! The C library: the module that moves the counts of a program that has not changed.
//!
//! `malloc`, `qsort` and the like are different work in different versions, and every program has
//! them. Who compares counts of two machines or images often compares their C libraries.
//!
//! Promise: R39

/// Returns whether a file of this name is a C library: `libc.so.6`, the `libc-2.31.so` that it was
/// a link to until glibc 2.34, or musl's, which is the dynamic linker too.
pub fn is_c_library(name: &str) -> bool {
    let version = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    name.strip_prefix("libc.so.").is_some_and(version)
        || name.strip_prefix("libc-").is_some_and(|rest| version(rest) && rest.ends_with(".so"))
        || name.starts_with("libc.musl-")
        || name.starts_with("ld-musl-")
}

/// Returns a remark, of one line, if modules of these names are other builds than before and one of
/// them is the C library.
pub fn notice(rebuilt: &[String]) -> Option<&'static str> {
    rebuilt.iter().any(|name| is_c_library(name)).then_some(
        "malloc and other functions may differ between builds of the C library: changed counts may come from it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_libraries_are_known_by_name() {
        let names = ["libc.so.6", "libc-2.31.so", "libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1"];
        for name in names {
            assert!(is_c_library(name), "{name}");
            assert!(notice(&["prog".into(), name.into()]).is_some(), "{name}");
        }
        let others =
            ["libc++.so.1", "libc.so", "libcap.so.2", "libc-client.so.2007", "libc", "glibc.so.6"];
        for name in others {
            assert!(!is_c_library(name), "{name}");
            assert_eq!(notice(&[name.into()]), None, "{name}");
        }
        assert_eq!(notice(&[]), None);
    }
}
