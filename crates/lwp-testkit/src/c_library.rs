//! The common parts of the tests of a library for C programs: the dialects its headers are compiled
//! in, what readelf says of it, how clients find it, and whether its manual pages hang together.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Compilers and the standards in which a header has to compile without a warning.
pub const DIALECTS: [(&str, &str); 5] = [
    ("cc", "-std=c99"),
    ("cc", "-std=c11"),
    ("cc", "-std=gnu17"),
    ("c++", "-std=c++11"),
    ("c++", "-std=c++17"),
];

/// Returns the output of readelf for `file` under `option`.
///
/// # Panics
///
/// Where there is no readelf, or no text of it.
pub fn readelf(option: &str, file: &Path) -> String {
    let output = Command::new("readelf").args(["-W", option]).arg(file).output();
    String::from_utf8(output.expect("readelf runs").stdout).expect("readelf writes text")
}

/// Every page in section 3 of `man` is one, or leads to one, groff has nothing to say against it,
/// and every page that it names is there: `ours` finds in a page's text the file names of those
/// that should be.
///
/// # Panics
///
/// Where that is not so.
pub fn pages_are_sound(man: &Path, ours: impl Fn(&str) -> Vec<String>) {
    for page in fs::read_dir(man.join("man3")).expect("there are pages") {
        let page = page.expect("a page").path();
        let text = fs::read_to_string(&page).expect("a page's text");
        if let Some(to) = text.strip_prefix(".so ") {
            let to = fs::read_to_string(man.join(to.trim())).unwrap_or_default();
            assert!(to.contains(".SH NAME"), "{}: {text}", page.display());
            continue;
        }
        for name in ours(&text) {
            assert!(man.join("man3").join(&name).exists(), "{} names {name}", page.display());
        }
        let mut groff = Command::new("groff");
        let Ok(shown) = groff.args(["-t", "-man", "-ww", "-Tutf8"]).arg(&page).output() else {
            continue; // There is no groff.
        };
        let warnings = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
    }
}

/// Makes `folder` anew, with `library` in it as it is installed: under `name` and a version, which
/// a link leads to.
///
/// # Panics
///
/// Where that is impossible.
pub fn lay_out(folder: &Path, library: &Path, name: &str) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder");
    let versioned = format!("{name}.1");
    fs::copy(library, folder.join(&versioned)).expect("a copy of the library");
    symlink(&versioned, folder.join(name)).expect("a link to it");
}

/// A folder that the tests of a program share, each perhaps in a process of its own: `make` fills
/// it once for each build of the program.
///
/// # Panics
///
/// Where that is impossible.
pub fn made_once(folder: &Path, make: impl FnOnce(&Path)) {
    let program = std::env::current_exe().and_then(fs::metadata).expect("the test program");
    let build = format!("{:?} {}", program.modified().expect("a time"), program.len());
    let lock = File::create(folder.with_extension("lock")).expect("a lock");
    lock.lock().expect("the lock");
    let mark = folder.with_extension("made");
    if fs::read_to_string(&mark).is_ok_and(|made| made == build) {
        return;
    }
    let _ = fs::remove_file(&mark);
    make(folder);
    fs::write(&mark, build).expect("a mark");
}

/// Compiles `source` to `program` as a client of `package`, installed in `prefix`, with what
/// pkg-config says of it. False where there is no pkg-config.
///
/// # Panics
///
/// Where pkg-config does not find the package, or the client cannot be built.
pub fn build_installed(package: &str, prefix: &Path, source: &Path, program: &Path) -> bool {
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", package]);
    let Ok(flags) = config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).output() else {
        return false;
    };
    assert!(flags.status.success(), "{flags:?}");
    let flags = String::from_utf8(flags.stdout).expect("pkg-config writes text");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(program).arg(source).arg("-pthread").args(flags.split_whitespace());
    compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    assert!(compiler.status().expect("a compiler").success());
    true
}

/// The exit status of memcheck where it has found a fault.
const FAULTS: &str = "99";

/// Runs `program` with `words` under valgrind's memcheck, which must have nothing to report;
/// `None`, said on standard error, where there is no valgrind.
///
/// # Panics
///
/// Where memcheck finds a fault, or a definite leak.
#[allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
pub fn memcheck(program: &Path, words: &[&str]) -> Option<Output> {
    let has = Command::new("valgrind").arg("--version").output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no valgrind to check with");
        return None;
    }
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", "valgrind", "-q", "--leak-check=full", "--fair-sched=yes"]);
    command.args([
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        &format!("--error-exitcode={FAULTS}"),
    ]);
    let output = command.arg(program).args(words).output().expect("valgrind runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("=="), "{words:?}: {errors}");
    assert!(output.status.code().is_some_and(|code| code.to_string() != FAULTS), "{errors}");
    Some(output)
}

/// Returns whether everything is to be checked that can be, as `cargo xtask stress --checkers`
/// wants.
pub fn all_checks() -> bool {
    std::env::var_os("LWP_CHECKERS").is_some_and(|value| value == "all")
}
