//! libcpc.so.1 as C programs see it: names, versions, header, and a program for each scenario.
//!
//! Promise: C21

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use lwp_testkit::c_library::{
    DIALECTS, all_checks, build_installed, lay_out, made_once, memcheck, pages_are_sound, readelf,
};

fn here() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// Where the build of this test put its libraries and programs.
fn built() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_owned()
}

/// The library of the same build as this test.
fn library() -> PathBuf {
    // Beside the test: what is a folder higher only `cargo build` brings up to date.
    let library = env::current_exe().unwrap().with_file_name("liblwp_cpc.so");
    assert!(library.exists(), "{}: built with the rlib", library.display());
    library
}

/// A folder with the library as it is installed, and the compiled client.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lwp-cpc-client");
        made_once(&folder, compile_client);
        folder
    })
}

fn compile_client(folder: &Path) {
    lay_out(folder, &library(), "libcpc.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-pthread"]);
    compiler.args(["-Wno-missing-field-initializers", "-I"]).arg(here().join("include"));
    compiler.arg(here().join("tests/client.c")).arg("-o").arg(folder.join("client"));
    compiler.arg("-L").arg(folder).arg("-lcpc");
    compiler.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compiler.status().unwrap().success());
}

/// Runs a scenario of the client.
fn run(seconds: u32, scenario: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", &seconds.to_string()]);
    command.arg(folder().join("client")).arg(scenario).output().unwrap()
}

fn succeeds(scenario: &str) {
    let output = run(120, scenario);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {:?}: {errors}", output.status);
    assert!(output.stdout.is_empty() && errors.is_empty(), "{scenario}: {errors}");
}

macro_rules! scenarios {
    ($($scenario:ident),* $(,)?) => {
        $(#[test] fn $scenario() { succeeds(stringify!($scenario)); })*
        const SCENARIOS: &[&str] = &[$(stringify!($scenario)),*];
    };
}

scenarios! {
    overflow, frozen, presets, rebind, threads, openmp, crowd, inherit, inherit_overflow, enable,
    rotate, forked, buffers, errors, denied, hardware, objects, cycles, processor, walkers, records,
    handlers, ways, neighbours, memory,
}

/// Under memcheck too, which finds nothing to report.
#[test]
fn memcheck_has_nothing_to_report() {
    let short = &["buffers", "errors", "objects", "threads"][..];
    for scenario in if all_checks() { SCENARIOS } else { short } {
        let Some(output) = memcheck(&folder().join("client"), &[*scenario]) else { return };
        assert!(output.status.success(), "{scenario}: {output:?}");
    }
}

#[test]
fn without_a_handler_messages_go_to_standard_error() {
    let output = run(30, "default_handler");
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("libcpc: cpc_set_add_request: event \"no-such-event\" cannot"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
}

/// What the client prints on the virtual CPU: a number.
fn number_on(words: &[&str]) -> u64 {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300"]).arg(built().join("lwp")).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    text.split([',', '\n']).next().unwrap().parse().unwrap_or_else(|_| panic!("{words:?}: {text}"))
}

/// The client's loop, and nothing else: its count is the same in every run.
const LOOP: &str = r#"
    .globl _start
_start:
    mov 16(%rsp), %rdi          # argv[1]
    xor %ecx, %ecx
2:  movzbl (%rdi), %eax
    inc %rdi
    sub $'0', %eax
    js 1f
    imul $10, %rcx
    add %rax, %rcx
    jmp 2b
1:  nop
    dec %rcx
    jnz 1b
    mov $60, %eax
    xor %edi, %edi
    syscall
"#;

/// Of two runs that differ in how often they turn, `lwp stat` counts the whole and libcpc the loop:
/// both find the same difference, to the instruction.
///
/// Promise: C13
#[test]
fn counts_are_those_of_lwp_stat() {
    if !built().join("lwp").exists() {
        return;
    }
    let (source, alone) = (folder().join("loop.s"), folder().join("loop"));
    fs::write(&source, LOOP).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-nostdlib", "-static", "-o"]).arg(&alone).arg(&source);
    assert!(compiler.status().unwrap().success());
    let client = folder().join("client");
    let stat = |n: &str| {
        number_on(&["stat", "-x,", "-e", "instructions", "--", alone.to_str().unwrap(), n])
    };
    let libcpc = |n: &str| number_on(&["run", "--", client.to_str().unwrap(), "lwp_turns", n]);
    let (few, many) = ("100000", "900000");
    assert_eq!(stat(many) - stat(few), 2_400_000);
    assert_eq!(stat(many) - stat(few), libcpc(many) - libcpc(few));
    assert_eq!(libcpc(few), 300_002);
}

/// A controller in C, where libpctx has been built as well; on the virtual CPU too, as far as that
/// is built.
///
/// Promise: T11
#[test]
fn a_controlled_program_switches_its_counters() {
    let pctx = env::current_exe().unwrap().with_file_name("liblwp_pctx.so");
    if !pctx.exists() {
        return;
    }
    let folder = folder();
    fs::copy(pctx, folder.join("libpctx.so.1")).unwrap();
    // An earlier run of this test may have made it.
    let _ = fs::remove_file(folder.join("libpctx.so"));
    symlink("libpctx.so.1", folder.join("libpctx.so")).unwrap();
    let program = folder.join("controller");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here().join("include"));
    compiler.arg("-I").arg(here().join("../lwp-pctx/include"));
    compiler.arg(here().join("tests/controller.c")).arg("-o").arg(&program);
    compiler.arg("-L").arg(folder).args(["-lcpc", "-lpctx"]);
    compiler.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compiler.status().unwrap().success());
    let lwp = built().join("lwp");
    let virtually: &[&str] = &[lwp.to_str().unwrap(), "run", "--"];
    for before in [&[][..], virtually].into_iter().take(1 + usize::from(lwp.exists())) {
        let mut command = Command::new("timeout");
        let output = command.args(["-k", "1", "300"]).args(before).arg(&program).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
        assert!(output.stdout.is_empty());
    }
}

/// Runs a scenario on a processor with Lightweight Profiling: the virtual CPU, as far as it is
/// built. Natively the scenario says that there is none.
fn with_lwp(scenario: &str) {
    let lwp = built().join("lwp");
    if lwp.exists() {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300"]).arg(lwp).args(["run", "--"]);
        let output = command.arg(folder().join("client")).arg(scenario).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {errors}", output.status);
    }
    let code = run(30, scenario).status.code();
    assert!(matches!(code, Some(0 | 77)), "{code:?}");
}

#[test]
fn counts_by_lightweight_profiling() {
    with_lwp("lwp_counts");
}

#[test]
fn records_by_lightweight_profiling() {
    with_lwp("lwp_records");
}

#[test]
fn threads_have_lightweight_profiling_of_their_own() {
    with_lwp("lwp_threads");
}

#[test]
fn overflows_by_lightweight_profiling() {
    with_lwp("lwp_overflow");
}

#[test]
fn handlers_on_lightweight_profiling() {
    with_lwp("lwp_handlers");
}

#[test]
fn sets_on_lightweight_profiling() {
    with_lwp("lwp_sets");
}

#[test]
fn openmp_on_lightweight_profiling() {
    with_lwp("lwp_openmp");
}

#[test]
fn room_for_records_of_lightweight_profiling() {
    with_lwp("lwp_room");
}

#[test]
fn refusals_of_lightweight_profiling() {
    with_lwp("lwp_errors");
}

/// Promise: C8
#[test]
fn names_and_versions_are_the_list_s() {
    let symbols = readelf("--dyn-syms", &library());
    let mut names: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| name.contains('@') || name.chars().next().is_some_and(char::is_lowercase))
        .collect();
    names.sort_unstable();
    let list = fs::read_to_string(here().join("abi/libcpc.syms")).unwrap();
    assert_eq!(names, list.lines().collect::<Vec<_>>());
    assert!(readelf("-d", &library()).contains("[libcpc.so.1]"));
}

/// Every function of the header is exported, and every exported one declared.
#[test]
fn the_header_declares_what_is_exported() {
    let header = fs::read_to_string(here().join("include/libcpc.h")).unwrap();
    let list = fs::read_to_string(here().join("abi/libcpc.syms")).unwrap();
    let exported: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split('@').next())
        .filter(|name| name.starts_with("cpc_"))
        .collect();
    let declared =
        |name: &str| header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}("));
    for name in &exported {
        assert!(declared(name), "{name} is not declared");
    }
    let declarations = header.lines().filter(|line| line.starts_with("extern "));
    let functions = declarations.filter(|line| !line.starts_with("extern \""));
    assert_eq!(functions.count(), exported.len());
}

/// Promise: C16
#[test]
fn the_header_stands_alone() {
    let source = folder().join("header.c");
    fs::write(&source, "#include <libcpc.h>\nint main(void) { return SIGEMT == 0; }\n").unwrap();
    for (compiler, standard) in DIALECTS {
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
        if compiler == "c++" {
            command.args(["-x", "c++"]);
        }
        command.arg("-I").arg(here().join("include")).arg(&source);
        assert!(command.status().unwrap().success(), "{compiler} {standard}");
    }
}

/// A program of Solaris with nothing but headers of its own is C and C++ here.
///
/// Promise: C19
#[test]
fn a_port_finds_its_headers() {
    let folder = folder();
    for (compiler, standard) in [("cc", "-std=gnu99"), ("cc", "-std=gnu17"), ("c++", "-std=c++17")]
    {
        let program = folder.join("port");
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-pthread"]);
        if compiler == "c++" {
            command.args(["-x", "c++"]);
        }
        command.arg("-I").arg(here().join("include")).arg("-I").arg(here().join("compat"));
        command.arg(here().join("tests/port.c")).arg("-o").arg(&program);
        command.args(["-x", "none"]).arg("-L").arg(folder).arg("-lcpc");
        command.arg(format!("-Wl,-rpath,{}", folder.display()));
        assert!(command.status().unwrap().success(), "{compiler} {standard}");
        let output = Command::new("timeout").args(["-k", "1", "300"]).arg(&program).output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{standard}: {errors}");
    }
}

/// The program that compares libraries of other systems finds ours to be as the documents say.
///
/// Promise: C20
#[test]
fn foreign_systems_can_be_compared() {
    let folder = folder();
    let script = here().join("../../tests/foreign/libcpc.sh");
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", "sh"]).arg(script);
    let flags = [
        format!("-I{}", here().join("include").display()),
        format!("-L{0} -Wl,-rpath,{0}", folder.display()),
        "-Wall -Wextra -Werror".to_owned(),
    ];
    let output = command.env("CFLAGS", flags.join(" ")).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("# as libcpc.log"), "{errors}");
}

/// The files of our pages that a page's text names.
fn named(text: &str) -> Vec<String> {
    text.split("(3CPC)")
        .filter_map(|before| before.split(r"\fB").last())
        .map(|named| named.trim_end_matches(r"\fR").trim_start_matches(".BR ").trim())
        .filter(|name| {
            name.starts_with("cpc_") && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
        .map(|name| format!("{name}.3cpc"))
        .collect()
}

/// What install.sh puts somewhere is found by pkg-config, and every function has a manual page
/// there.
///
/// Promise: C16
#[test]
fn what_is_installed_builds_a_client() {
    let prefix = folder().join("installed");
    let built = library();
    let mut install = Command::new("sh");
    install.arg(here().join("install.sh")).arg(built.parent().unwrap());
    install.env("PREFIX", &prefix).env_remove("DESTDIR").env("COMPAT", "1");
    let installed = install.output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let said = String::from_utf8(installed.stdout).unwrap();
    assert!(said.contains(&format!("-Wl,-rpath,{}/lib", prefix.display())), "{said}");
    for command in ["cputrack", "cpustat"] {
        let line = said.lines().find(|line| line.contains(command));
        assert!(line.is_some_and(|line| line.contains("installed")), "{said}");
    }
    for line in fs::read_to_string(here().join("abi/libcpc.syms")).unwrap().lines() {
        let name = line.split('@').next().unwrap();
        let page = prefix.join("share/man/man3").join(format!("{name}.3cpc"));
        assert!(!name.starts_with("cpc_") || page.exists(), "{name} has no manual page");
    }
    pages_are_sound(&prefix.join("share/man"), named);
    let program = folder().join("installed-client");
    if !build_installed("libcpc", &prefix, &here().join("tests/client.c"), &program) {
        return; // There is no pkg-config.
    }
    let output =
        Command::new("timeout").args(["-k", "1", "300"]).arg(&program).arg("buffers").output();
    assert!(output.unwrap().status.success());
}
