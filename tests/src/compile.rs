//! Builds test programs with the system's C compiler, once per content.

use crate::directives::{Directives, Variant};
use crate::lwp::target_directory;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A built test program.
#[derive(Clone, Debug)]
pub struct Executable {
    /// `GROUP/NAME`.
    pub name: String,
    /// How it was linked.
    pub variant: Variant,
    /// The file to run.
    pub path: PathBuf,
    /// What the source says about itself.
    pub directives: Directives,
}

/// Folder of the test programs' sources.
pub fn programs_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// `GROUP/NAME` of every test program, sorted. Sources named `lib*` belong to another program.
pub fn source_files() -> Vec<String> {
    let mut names = Vec::new();
    for group in read_dir(&programs_dir()).into_iter().filter(|p| p.is_dir()) {
        if group.file_name().is_some_and(|n| n == "tools") {
            continue;
        }
        for file in read_dir(&group) {
            let is_source = file.extension().is_some_and(|e| e == "c" || e == "cpp" || e == "S");
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if is_source && !stem.starts_with("lib") {
                let group = group.file_name().unwrap_or_default().to_string_lossy();
                names.push(format!("{group}/{stem}"));
            }
        }
    }
    names.sort();
    names
}

fn read_dir(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("read {}: {e}", dir.display()));
    entries.map(|entry| entry.expect("read a folder entry").path()).collect()
}

/// Builds every variant of `GROUP/NAME`, or finds it in the cache.
///
/// # Panics
///
/// If the source is missing or does not compile.
pub fn compile(name: &str) -> Vec<Executable> {
    let source = source_path(name);
    let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let directives = Directives::parse(&text);
    let build = |&variant: &Variant| {
        let mut flags: Vec<String> = variant.flags().iter().map(|&f| f.to_owned()).collect();
        flags.extend(directives.cflags.iter().cloned());
        let path = cached(&source, &flags, &directives.libs, variant.name());
        Executable { name: name.to_owned(), variant, path, directives: directives.clone() }
    };
    directives.variants.iter().map(build).collect()
}

/// Builds `programs/tools/NAME.c`, a program of the harness itself.
pub fn compile_tool(name: &str) -> PathBuf {
    let source = programs_dir().join("tools").join(format!("{name}.c"));
    cached(&source, &["-O2".to_owned()], &[], "tool")
}

/// Path of an installed program, if it is there.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn source_path(name: &str) -> PathBuf {
    let base = programs_dir().join(name);
    let candidates = ["c", "cpp", "S"].map(|e| base.with_extension(e));
    let found = candidates.into_iter().find(|p| p.is_file());
    found.unwrap_or_else(|| panic!("no source for {name}"))
}

/// Compiles into a folder named by the hash of everything that goes in.
///
/// Concurrent builders of the same content each build in a folder of their own; the first rename
/// wins.
fn cached(source: &Path, flags: &[String], libs: &[String], variant: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let stem = source.file_stem().expect("source has a name").to_string_lossy().into_owned();
    let lib_sources: Vec<PathBuf> =
        libs.iter().map(|l| source.with_file_name(l).with_extension("c")).collect();
    let hash = content_hash(source, &lib_sources, flags);
    let done = cache_dir().join(format!("{stem}-{variant}-{hash:016x}"));
    let executable = done.join(&stem);
    if executable.is_file() {
        return executable;
    }
    let unique = format!("{stem}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let building = cache_dir().join(unique);
    fs::create_dir_all(&building).expect("create a build folder");
    compiler(source, flags, &building.join(&stem));
    for lib in &lib_sources {
        let stem = lib.file_stem().expect("library has a name");
        let flags = ["-O1", "-fPIC", "-shared"].map(str::to_owned);
        compiler(lib, &flags, &building.join(stem).with_extension("so"));
    }
    if fs::rename(&building, &done).is_err() {
        assert!(executable.is_file(), "cannot move {} into place", building.display());
        fs::remove_dir_all(&building).expect("remove a surplus build");
    }
    executable
}

fn compiler(source: &Path, flags: &[String], output: &Path) {
    let cc = if source.extension().is_some_and(|e| e == "cpp") { "g++" } else { "gcc" };
    let mut args: Vec<OsString> = vec!["-g".into(), "-Wall".into(), "-I".into()];
    args.push(programs_dir().into());
    args.extend(flags.iter().map(OsString::from));
    args.extend(["-o".into(), output.into(), source.into()]);
    // After the source, where the linker wants them; a no-op where nothing uses them.
    let bare = flags.iter().any(|f| f == "-nostdlib" || f == "-shared");
    args.extend(if bare { &[][..] } else { &["-ldl", "-lm", "-lutil"] }.iter().map(OsString::from));
    let result = Command::new(cc).args(&args).output().unwrap_or_else(|e| panic!("{cc}: {e}"));
    let messages = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{cc} failed for {}:\n{messages}", source.display());
}

fn content_hash(source: &Path, libs: &[PathBuf], flags: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut inputs = vec![source.to_owned()];
    inputs.extend(libs.iter().cloned());
    let headers = read_dir(&programs_dir());
    inputs.extend(headers.into_iter().filter(|p| p.extension().is_some_and(|e| e == "h")));
    inputs.sort();
    for file in inputs {
        let bytes = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        bytes.hash(&mut hasher);
    }
    flags.hash(&mut hasher);
    compiler_version().hash(&mut hasher);
    hasher.finish()
}

fn compiler_version() -> &'static [u8] {
    static VERSION: OnceLock<Vec<u8>> = OnceLock::new();
    VERSION.get_or_init(|| {
        Command::new("gcc").arg("--version").output().expect("gcc is needed to build tests").stdout
    })
}

/// `TARGET/lwp-tests`, found from the running test executable.
fn cache_dir() -> PathBuf {
    target_directory().join("lwp-tests")
}
