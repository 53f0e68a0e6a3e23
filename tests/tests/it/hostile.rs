//! Files that no linker has made, and bytes that no compiler has: each must end on the virtual CPU
//! as it does natively, and neither hang nor crash lwp.
//!
//! Promise: F13
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_testkit::files::{copy_program, write_program};
use lwp_tests::{
    End, Job, Outcome, TempDir, find_tool, kernel_executes, lwp_binary, without_notes,
};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// How long a native run may take; what takes longer loops for ever and is not compared.
const NATIVE: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(60);
const BASE: u64 = 0x40_0000;
/// Header and two program headers.
const HEADERS: usize = 64 + 2 * 56;

/// splitmix64: the same bytes every time.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }
}

/// A program with `code` at its entry, and a page that it may write to.
fn elf(code: &[u8]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |out: &mut Vec<u8>, value: u16| out.extend(value.to_le_bytes());
    let word = |out: &mut Vec<u8>, value: u32| out.extend(value.to_le_bytes());
    let wide = |out: &mut Vec<u8>, value: u64| out.extend(value.to_le_bytes());
    half(&mut out, 2); // executable
    half(&mut out, 62); // x86-64
    word(&mut out, 1);
    wide(&mut out, BASE + HEADERS as u64); // entry
    wide(&mut out, 64); // program headers
    wide(&mut out, 0);
    word(&mut out, 0);
    for value in [64, 56, 2, 64, 0, 0] {
        half(&mut out, value);
    }
    let len = (HEADERS + code.len()) as u64;
    for (flags, offset, address, in_file, in_memory) in
        [(5, 0, BASE, len, len), (6, 0, BASE + 0x10_0000, 0, 0x2000)]
    {
        word(&mut out, 1); // PT_LOAD
        word(&mut out, flags);
        for value in [offset, address, address, in_file, in_memory, 0x1000] {
            wide(&mut out, value);
        }
    }
    assert_eq!(out.len(), HEADERS);
    out.extend(code);
    out
}

/// Writes "ok" to its page and from there to standard output, by a call in a loop; exits with 5.
#[rustfmt::skip] // One instruction a line.
const SAYS_OK: &[u8] = &[
    0xbb, 3, 0, 0, 0,                       // mov ebx, 3
    0xe8, 0x10, 0, 0, 0,                    // again: call say
    0xff, 0xcb,                             // dec ebx
    0x75, 0xf7,                             // jnz again
    0xb8, 231, 0, 0, 0,                     // mov eax, exit_group
    0xbf, 5, 0, 0, 0,                       // mov edi, 5
    0x0f, 0x05,
    // say:
    0xbe, 0x00, 0x00, 0x50, 0x00,           // mov esi, the page
    0xc7, 0x06, b'o', b'k', b'\n', 0,       // mov dword [rsi], "ok\n"
    0xb8, 1, 0, 0, 0,                       // mov eax, write
    0xbf, 1, 0, 0, 0,                       // mov edi, 1
    0xba, 3, 0, 0, 0,                       // mov edx, 3
    0x0f, 0x05,
    0xc3,
];

/// A place to run programs in, as a user who can do no harm where that is possible.
struct Arena {
    dir: TempDir,
    capture: TempDir,
    /// What every command begins with.
    prefix: Vec<OsString>,
}

impl Arena {
    fn new() -> Self {
        let dir = TempDir::new();
        copy_program(lwp_binary(), &dir.path().join("lwp"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut prefix: Vec<OsString> = Vec::new();
        if rustix::process::geteuid().is_root() && find_tool("setpriv").is_some() {
            prefix.extend(["setpriv", "--reuid", "54323", "--clear-groups"].map(Into::into));
        }
        // The layout is the same on both sides.
        prefix.extend(["setarch", "-R"].map(Into::into));
        Self { dir, capture: TempDir::new(), prefix }
    }

    fn install(&self, program: &[u8]) {
        let path = self.dir.path().join("it");
        let _ = fs::remove_file(&path);
        write_program(&path, program);
    }

    fn run(&self, command: &[&str], limit: Duration) -> Outcome {
        let mut argv = self.prefix.clone();
        argv.extend(command.iter().map(OsString::from));
        let mut job = Job::new(argv, limit);
        job.bare_env = true;
        job.run(self.dir.path(), self.capture.path())
    }

    /// Compares `program` with its native run; false if that does not end.
    fn compare(&self, name: &str, program: &[u8]) -> bool {
        self.install(program);
        let ways: [&[&str]; 2] = [
            &["./lwp", "run", "--no-cache", "--", "./it"],
            &["./lwp", "stat", "--no-cache", "-o", "/dev/null", "--", "./it"],
        ];
        if !is_for_a_shell(program) && !kernel_executes(&self.dir.path().join("it")) {
            for way in ways {
                let outcome = self.run(way, LIMIT);
                let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
                assert_eq!(outcome.end, End::Code(126), "{name}: {error}");
                assert!(error.starts_with("lwp: "), "{name}: {error}");
            }
            return true;
        }
        let native = self.run(&["./it"], NATIVE);
        if native.end == End::TimedOut {
            return false;
        }
        for way in ways {
            let outcome = self.run(way, LIMIT);
            let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert_eq!(outcome.end, native.end, "{name}, {way:?}: {error}");
            assert_eq!(outcome.stdout, native.stdout, "{name}, {way:?}: {error}");
            let stderr = without_notes(&outcome.stderr);
            assert_eq!(stderr, without_notes(&native.stderr), "{name}, {way:?}: {error}");
        }
        true
    }
}

/// Returns whether lwp gives a file to a shell, as execvp(3) does, by which setarch starts it
/// natively: the kernel does not know its format, and its first line is text.
fn is_for_a_shell(program: &[u8]) -> bool {
    let start = &program[..program.len().min(256)];
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    !start.starts_with(b"\x7fELF") && !line.contains(&0)
}

fn main_tools() -> bool {
    let there = find_tool("setarch").is_some();
    if !there {
        eprintln!("skipped: no setarch");
    }
    there
}

#[test]
fn the_program_itself_works() {
    if !main_tools() {
        return;
    }
    let arena = Arena::new();
    arena.install(&elf(SAYS_OK));
    let outcome = arena.run(&["./it"], NATIVE);
    assert_eq!((outcome.end, &outcome.stdout[..]), (End::Code(5), &b"ok\nok\nok\n"[..]));
    assert!(arena.compare("as it is", &elf(SAYS_OK)));
}

#[test]
fn truncated_programs() {
    if !main_tools() {
        return;
    }
    let arena = Arena::new();
    let whole = elf(SAYS_OK);
    let mut lengths: Vec<usize> = (0..whole.len()).step_by(7).collect();
    lengths.extend([1, 4, 63, 64, 65, 119, 120, HEADERS - 1, HEADERS, HEADERS + 1]);
    for len in lengths {
        arena.compare(&format!("cut to {len} bytes"), &whole[..len]);
    }
}

/// Headers with one to three bytes or fields changed.
#[test]
fn mutated_headers() {
    if !main_tools() {
        return;
    }
    let arena = Arena::new();
    let mut random = Random(2007);
    let mut ended = 0;
    for number in 0..250 {
        let mut program = elf(SAYS_OK);
        for _ in 0..=random.below(3) {
            let at = random.below(HEADERS);
            match random.below(4) {
                0 => program[at] = random.draw() as u8,
                1 => program[at] ^= 1 << random.below(8),
                2 => {
                    let interesting = [0, 1, 0x7f, 0x80, 0xff];
                    program[at] = interesting[random.below(interesting.len())];
                }
                _ => {
                    let at = at & !7;
                    let wide = random.draw() >> random.below(64);
                    program[at..at + 8].copy_from_slice(&wide.to_le_bytes());
                }
            }
        }
        ended += u32::from(arena.compare(&format!("mutation {number}"), &program));
    }
    assert!(ended >= 200, "only {ended} could be compared");
}

/// Code of random bytes, plain and with a valid program around the odd ones.
#[test]
fn random_bytes_as_code() {
    if !main_tools() {
        return;
    }
    let arena = Arena::new();
    let mut random = Random(1963);
    let mut ended = 0;
    for number in 0..250 {
        let code = if number % 2 == 0 {
            (0..400).map(|_| random.draw() as u8).collect()
        } else {
            let mut code = SAYS_OK.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(code.len());
                code[at] = random.draw() as u8;
            }
            code
        };
        ended += u32::from(arena.compare(&format!("bytes {number}"), &elf(&code)));
    }
    assert!(ended >= 200, "only {ended} could be compared");
}
