//! liblwp.so.1 as C programs see it: names, versions, header, manual, and a program for each
//! scenario, on the virtual CPU and natively.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use lwp_testkit::c_library::{
    DIALECTS, build_installed, lay_out, made_once, memcheck, pages_are_sound, readelf,
};

fn here() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

fn include() -> PathBuf {
    here().join("../../include")
}

/// The library of the same build as this test.
fn library() -> PathBuf {
    // Beside the test: what is a folder higher only `cargo build` brings up to date.
    let library = env::current_exe().unwrap().with_file_name("liblwp_capi.so");
    assert!(library.exists(), "{}: built with the rlib", library.display());
    library
}

/// The command, built if nobody has done so yet.
fn lwp() -> &'static Path {
    static LWP: OnceLock<PathBuf> = OnceLock::new();
    LWP.get_or_init(|| {
        let built = env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let lwp = built.join("lwp");
        if !lwp.exists() {
            let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build.args(["build", "--package", "lwp-cli", "--target-dir"]);
            build.arg(built.parent().unwrap()).current_dir(here());
            if built.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success());
        }
        assert!(lwp.exists(), "{}", lwp.display());
        lwp
    })
}

/// A folder with the library as it is installed.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("liblwp-client");
        made_once(&folder, |folder| {
            lay_out(folder, &library(), "liblwp.so");
            compile_into(folder, "cc", "-std=c99", "tests/client.c", "client");
        });
        folder
    })
}

/// Compiles a program of this crate as strictly as a language allows. Warnings are errors.
fn compile(compiler: &str, standard: &str, source: &str, name: &str) -> PathBuf {
    compile_into(folder(), compiler, standard, source, name)
}

fn compile_into(
    folder: &Path,
    compiler: &str,
    standard: &str,
    source: &str,
    name: &str,
) -> PathBuf {
    let program = folder.join(name);
    let mut command = Command::new(compiler);
    command.args([standard, "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]);
    if compiler == "c++" {
        command.args(["-x", "c++"]);
    } else {
        command.arg("-Wstrict-prototypes");
    }
    command.arg("-I").arg(include()).arg(here().join(source)).args(["-x", "none", "-o"]);
    // A program that loads the library itself is not linked to it.
    command.arg(&program).args(["-Wl,--as-needed", "-L"]).arg(folder).args(["-llwp", "-ldl"]);
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(command.status().unwrap().success(), "{compiler} {standard} {source}");
    program
}

/// The client of the scenarios.
fn client() -> PathBuf {
    folder().join("client")
}

fn limited(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300"]).args(words);
    command
}

/// Runs a program on the virtual CPU, with options of `lwp run`.
fn on_virtual_cpu(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let words = [&[lwp().to_str().unwrap(), "run"], options, &["--"]].concat();
    limited(&words).arg(program).args(arguments).output().unwrap()
}

fn natively(program: &Path, arguments: &[&str]) -> Output {
    limited(&[]).arg(program).args(arguments).output().unwrap()
}

fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

macro_rules! scenarios {
    ($($scenario:ident),* $(,)?) => {
        $(#[test] fn $scenario() {
            let output = on_virtual_cpu(&[], &client(), &[stringify!($scenario)]);
            assert_eq!(printed(&output), "");
        })*
    };
}

scenarios! {
    records, full, own, filters, threads, drained, contended, forked, shared, threshold, none, code, wrong_options,
}

/// What the processor lacks is named, and nothing is left out silently.
///
/// Promise: Y5
#[test]
fn lacking() {
    assert_eq!(printed(&on_virtual_cpu(&["--cpu", "bulldozer"], &client(), &["lacking"])), "");
}

#[test]
fn the_same_client_is_c11_and_cxx17() {
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        let program = compile(compiler, standard, "tests/client.c", &format!("client{standard}"));
        for scenario in ["records", "own", "forked"] {
            assert_eq!(printed(&on_virtual_cpu(&[], &program, &[scenario])), "", "{standard}");
        }
    }
}

/// Loaded late and unloaded, with threads and a process that end while they are profiled.
///
/// Promise: Y3
#[test]
fn the_library_can_be_loaded_late() {
    let program = compile("cc", "-std=c99", "tests/loaded.c", "loaded");
    let library = folder().join("liblwp.so.1");
    let needed = Command::new("readelf").args(["-W", "-d"]).arg(&program).output().unwrap();
    assert!(!String::from_utf8_lossy(&needed.stdout).contains("[liblwp.so"), "it is linked to it");
    let output = on_virtual_cpu(&[], &program, &[library.to_str().unwrap()]);
    assert_eq!(printed(&output), "profiled until the end\n");
}

/// Without LWP everything that needs it says so, and what does not works.
///
/// Promise: Y5
#[test]
fn without_lwp_the_library_says_so() {
    assert_eq!(printed(&on_virtual_cpu(&[], &client(), &["available"])), "available\n");
    let said = printed(&natively(&client(), &["available"]));
    let none = "this processor has no Lightweight Profiling (under `lwp run` it would)\n";
    assert!(said == none || said == "available\n", "{said}");
    assert_eq!(printed(&natively(&client(), &["none"])), "");
    assert_eq!(printed(&natively(&client(), &["code"])), "");
}

/// What works without LWP works under memcheck, which shows none, and has nothing to report.
///
/// Promise: C21
#[test]
fn memcheck_has_nothing_to_report() {
    for scenario in ["none", "code", "available"] {
        let Some(output) = memcheck(&client(), &[scenario]) else { return };
        assert!(output.status.success(), "{scenario}: {output:?}");
    }
}

/// Functions that a program compiles while it runs are in the report by name, with exact counts;
/// those of threads and children too.
///
/// Promise: Y7, R31
#[test]
fn registered_code_is_reported_by_name() {
    let program = compile("cc", "-std=c99", "tests/jit.c", "jit");
    let recording = folder().join("jit.data");
    let recording = recording.to_str().unwrap();
    let lwp = lwp().to_str().unwrap();
    let record = limited(&[lwp, "record", "-q", "-o", recording, "--"]).arg(&program).output();
    for process in printed(&record.unwrap()).lines() {
        // Who reads the report needs them no more.
        fs::remove_file(format!("/tmp/perf-{process}.map")).unwrap();
    }
    let report = limited(&[lwp, "report", "-i", recording, "--format", "csv"]).output().unwrap();
    let report = printed(&report);
    for (name, instructions) in [
        ("jit: first", 2 + 2 * 1000),
        ("jit: on a thread [tier 2]", 2 + 2 * 2000),
        ("jit: in a child", 2 + 2 * 3000),
    ] {
        let row = report.lines().find(|line| line.contains(name));
        let row = row.unwrap_or_else(|| panic!("no {name}: {report}"));
        let count = instructions.to_string();
        assert!(row.split(',').any(|field| field == count), "{count}: {row}");
    }
}

#[test]
fn the_example_finds_its_hottest_branches() {
    let program = compile("cc", "-std=c99", "examples/where.c", "where");
    let output = printed(&on_virtual_cpu(&[], &program, &[]));
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 4, "{output}");
    assert!(lines[0].contains(" samples at 0x"), "{output}");
    assert_eq!(lines[3], "longest 327; 0 samples were lost");
    let native = natively(&program, &[]);
    let errors = String::from_utf8_lossy(&native.stderr);
    assert!(
        native.status.success() || errors.starts_with("where: this processor has no"),
        "{errors}"
    );
}

/// The example in C does what crate lwp's does, with the same counts: it finds its hot branches and
/// the usual method, and the second version executes less. The test of that one has the details.
///
/// Promise: W24
#[test]
fn the_example_optimises_itself() {
    let program = compile("cc", "-std=c99", "examples/self_optimizing.c", "self_optimizing");
    for (interval, records, loses) in [("200", "4096", false), ("1", "512", true)] {
        let output = printed(&on_virtual_cpu(&[], &program, &[interval, records, "0"]));
        for line in [
            "inline in block 4: xor",
            "order of blocks: [0, 2, 4, 5, 6, 1, 3]",
            "decided as from a record of everything: yes",
            "result as interpreted: yes",
            "instructions                 17792             14168",
            "branches taken                3902              1246",
        ] {
            assert!(output.lines().any(|it| it == line), "no {line}: {output}");
        }
        assert_eq!(output.contains("; 0 lost,"), !loses, "{output}");
    }
    let native = natively(&program, &["1000", "4096", "0"]);
    let errors = String::from_utf8_lossy(&native.stderr);
    let says = "self_optimizing: this processor has no Lightweight Profiling";
    let refused = native.status.code() == Some(77) && errors.starts_with(says);
    assert!(native.status.success() || refused, "{native:?}");
}

/// The functions that the library is to export.
fn listed() -> Vec<String> {
    let list = fs::read_to_string(here().join("abi/liblwp.syms")).unwrap();
    list.lines().map(|line| line.split('@').next().unwrap().to_owned()).collect()
}

/// Promise: Y6
#[test]
fn names_and_versions_are_the_list_s() {
    let symbols = readelf("--dyn-syms", &library());
    let mut names: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" FUNC ") && line.contains(" GLOBAL "))
        .filter(|line| !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .collect();
    names.sort_unstable();
    let list = fs::read_to_string(here().join("abi/liblwp.syms")).unwrap();
    assert_eq!(names, list.lines().collect::<Vec<_>>());
    assert!(readelf("-d", &library()).contains("[liblwp.so.1]"));
}

/// Every function of the header is exported, and every exported one declared.
///
/// Promise: Y6
#[test]
fn the_header_declares_what_is_exported() {
    let header = fs::read_to_string(include().join("lwp.h")).unwrap();
    let declarations: Vec<&str> = header
        .lines()
        .filter(|line| line.starts_with("extern ") && !line.starts_with("extern \""))
        .collect();
    for name in listed() {
        let declared = |line: &&&str| {
            line.contains(&format!(" {name}(")) || line.contains(&format!("*{name}("))
        };
        assert_eq!(declarations.iter().filter(declared).count(), 1, "{name}");
    }
    assert_eq!(declarations.len(), listed().len());
}

/// Promise: Y6
#[test]
fn the_headers_stand_alone() {
    for (name, main) in [
        ("lwp.h", "struct lwp_options o; lwp_options_init(&o); return o.every[31] != 0;"),
        ("lwp_arch.h", "struct lwp_capabilities c; return lwp_query(&c) == LWP_READY;"),
    ] {
        let source = folder().join(format!("{name}.c"));
        // Twice: the second inclusion is empty.
        let text = format!("#include <{name}>\n#include <{name}>\nint main(void) {{ {main} }}\n");
        fs::write(&source, text).unwrap();
        for (compiler, standard) in DIALECTS {
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
            if compiler == "c++" {
                command.args(["-x", "c++"]);
            }
            command.arg("-I").arg(include()).arg(&source);
            assert!(command.status().unwrap().success(), "{name} {compiler} {standard}");
        }
    }
}

/// The structure is as long as the library takes it to be, and its parts lie where it looks for
/// them.
#[test]
fn the_options_are_laid_out_as_the_library_reads_them() {
    let source = folder().join("layout.c");
    fs::write(
        &source,
        "#include <lwp.h>\n\
         typedef char size[sizeof(struct lwp_options) == 168 ? 1 : -1];\n\
         typedef char every[offsetof(struct lwp_options, every) == 8 ? 1 : -1];\n\
         typedef char ring[offsetof(struct lwp_options, ring_records) == 136 ? 1 : -1];\n\
         typedef char random[offsetof(struct lwp_options, random_bits) == 140 ? 1 : -1];\n\
         typedef char filters[offsetof(struct lwp_options, filters) == 144 ? 1 : -1];\n\
         typedef char threshold[offsetof(struct lwp_options, threshold_records) == 148 ? 1 : -1];\n\
         typedef char base[offsetof(struct lwp_options, base_ip) == 152 ? 1 : -1];\n\
         typedef char limit[offsetof(struct lwp_options, limit_ip) == 160 ? 1 : -1];\n\
         typedef char record[sizeof(struct lwp_record) == 32 ? 1 : -1];\n",
    )
    .unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-fsyntax-only", "-I"]).arg(include()).arg(&source);
    assert!(command.status().unwrap().success());
}

/// The files of our pages that a page's text names.
fn named(text: &str) -> Vec<String> {
    text.split(r"\fR(3)")
        .filter(|before| before.contains(r"\fB"))
        .filter_map(|before| before.rsplit(r"\fB").next())
        .filter(|name| name.starts_with("lwp") && !name.contains(char::is_whitespace))
        .map(|name| format!("{name}.3"))
        .collect()
}

/// What the script installs is found by pkg-config, and every function has a manual page there. It
/// installs what was built: without libcpc that is this library alone.
///
/// Promise: Y6
#[test]
fn what_is_installed_builds_a_client() {
    let prefix = folder().join("installed");
    let built = folder().join("built");
    // An earlier run of this test may have left them.
    let _ = (fs::remove_dir_all(&prefix), fs::remove_dir_all(&built));
    fs::create_dir_all(&built).unwrap();
    let script = here().join("../lwp-cpc/install.sh");
    let install = || {
        let mut install = Command::new("sh");
        install.arg(&script).arg(&built).env("PREFIX", &prefix).env_remove("DESTDIR");
        install.output().unwrap()
    };
    let nothing = install();
    assert!(!nothing.status.success() && !prefix.exists(), "there is nothing to install");
    fs::copy(library(), built.join("liblwp_capi.so")).unwrap();
    assert!(install().status.success());
    assert!(!prefix.join("include/libcpc.h").exists());
    for name in listed() {
        let page = prefix.join("share/man/man3").join(format!("{name}.3"));
        assert!(page.exists(), "{name} has no manual page");
    }
    pages_are_sound(&prefix.join("share/man"), named);
    let program = folder().join("installed-client");
    if !build_installed("lwp", &prefix, &here().join("tests/client.c"), &program) {
        return; // There is no pkg-config.
    }
    assert_eq!(printed(&on_virtual_cpu(&[], &program, &["full"])), "");
}
