//! Core dumps show every thread where the program has it.
//!
//! Promise: F20
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_tests::{End, Job, Outcome, TempDir, lwp_binary};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Three threads: one goes round in one instruction, with a gs base of its own, one waits in
/// pause(2), and the first dies when both are there. Each says by rbx which it is.
const SOURCE: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile int round, waiter;
    static void *goes_round(void *p)
    {
        syscall(SYS_arch_prctl, 0x1001, 0x123000);
        asm volatile("movl $1, %0; mov $0x1001, %%rbx; mov $0x77, %%r12\n"
                     ".globl turn\nturn: jmp turn" : "=m"(round) : : "rbx", "r12");
        return p;
    }
    static void *waits(void *p)
    {
        waiter = gettid();
        asm volatile("mov $0x1002, %%rbx; mov $0x77, %%r12; mov $34, %%eax; xor %%edi, %%edi; syscall"
                     : : : "rax", "rbx", "rcx", "rdi", "r11", "r12");
        return p;
    }
    static int is_waiting(void)
    {
        char name[64], text[64] = "";
        snprintf(name, sizeof name, "/proc/self/task/%d/syscall", waiter);
        int fd = open(name, O_RDONLY);
        if (fd < 0 || read(fd, text, 63) < 0)
            _exit(9);
        close(fd);
        return !strncmp(text, "34 ", 3);
    }
    int main(int argc, char **argv)
    {
        pthread_t one, two;
        pthread_create(&one, 0, goes_round, 0);
        pthread_create(&two, 0, waits, 0);
        while (!round || !waiter || !is_waiting())
            usleep(1000);
        if (argv[1][0] == 'b') {
            asm volatile("mov $0x1003, %%rbx; mov $0x77, %%r12; ud2" : : : "rbx", "r12");
        } else if (argv[1][0] == 'k') {
            kill(getpid(), SIGQUIT);
            for (;;)
                pause();
        }
        asm volatile("mov $0x1003, %%rbx; mov $0x77, %%r12; xor %%eax, %%eax; mov %%rax, (%%rax)"
                     : : : "rax", "rbx", "r12");
        return 0;
    }"#;

/// Words of `user_regs_struct` that are compared, by name.
const COMPARED: [(&str, usize); 7] = [
    ("rbx", 5),
    ("r12", 3),
    ("rax", 10),
    ("orig_rax", 15),
    ("rip", 16),
    ("cs", 17),
    ("gs_base", 22),
];
const RBX: usize = 5;
const RCX: usize = 11;
const RIP: usize = 16;

fn in_folder(dir: &Path, script: &str) -> Outcome {
    let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    let mut job = Job::new(argv, LIMIT);
    job.env = vec![("LWP".to_owned(), lwp_binary().into())];
    job.run(dir, dir)
}

fn program(dir: &Path, name: &str, text: &str) -> PathBuf {
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&source, text).expect("write a source");
    let built = Command::new("gcc")
        .args(["-O1", "-static", "-pthread", "-w", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("gcc is needed").success());
    program
}

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(word)
}

/// The general registers of every thread in a core file, from its NT_PRSTATUS notes.
fn threads(core: &[u8]) -> Vec<[u64; 27]> {
    const PT_NOTE: u64 = 4;
    const NT_PRSTATUS: u64 = 1;
    const REGISTERS: usize = 112;
    assert!(core.starts_with(b"\x7fELF"), "no core file");
    let (table, many) = (number(core, 32, 8) as usize, number(core, 56, 2) as usize);
    let headers = (0..many).map(|index| table + index * 56);
    let header = headers.into_iter().find(|at| number(core, *at, 4) == PT_NOTE).expect("notes");
    let mut at = number(core, header + 8, 8) as usize;
    let end = at + number(core, header + 32, 8) as usize;
    let mut out = Vec::new();
    while at + 12 <= end {
        let padded = |offset| (number(core, at + offset, 4) as usize).next_multiple_of(4);
        let content = at + 12 + padded(0);
        if number(core, at + 8, 4) == NT_PRSTATUS {
            let word = |index| number(core, content + REGISTERS + index * 8, 8);
            out.push(std::array::from_fn(word));
        }
        at = content + padded(4);
    }
    out
}

/// The compared registers of the threads that say who they are, by that.
fn known_threads(dir: &Path, command: &str) -> BTreeMap<u64, Vec<(&'static str, u64)>> {
    let script = format!("ulimit -c unlimited; rm -f core*; {command}; mv core* dumped");
    let outcome = in_folder(dir, &script);
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.end, End::Code(0), "{errors}");
    let core = fs::read(dir.join("dumped")).expect("a core file");
    let mut out = BTreeMap::new();
    for registers in threads(&core) {
        if matches!(registers[RBX], 0x1001..=0x1003) {
            let mut row: Vec<_> =
                COMPARED.iter().map(|(name, index)| (*name, registers[*index])).collect();
            row.push(("call left its place", u64::from(registers[RCX] == registers[RIP])));
            out.insert(registers[RBX], row);
        }
    }
    out
}

/// Wherever the threads are: in code, in a call, about to die of a signal of their own or of one
/// that was sent.
#[test]
fn every_thread_is_where_the_program_has_it() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.is_empty() || pattern.starts_with(['|', '/']) {
        eprintln!("skipped: core dumps do not go to the current folder: {pattern}");
        return;
    }
    if !Path::new("/proc/self/syscall").exists() {
        eprintln!("skipped: the kernel does not say which call a thread makes");
        return;
    }
    let dir = TempDir::new();
    program(dir.path(), "dies", SOURCE);
    for how in ["fault", "bad-instruction", "kill"] {
        let native = known_threads(dir.path(), &format!("./dies {how}"));
        assert_eq!(native.len(), if how == "kill" { 2 } else { 3 }, "{native:x?}");
        for mode in ["run", "stat -o counts"] {
            let command = format!("\"$LWP\" {mode} --no-cache -- ./dies {how}");
            let ours = known_threads(dir.path(), &command);
            assert_eq!(ours, native, "{mode} {how}: {ours:x?}\nnatively {native:x?}");
        }
    }
}

/// The first process of a namespace survives what kills others: its threads go on.
#[test]
fn threads_go_on_where_the_process_survives() {
    const SURVIVES: &str = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static volatile long turns, over;
        static int pipes[2];
        static void *turn(void *p) { while (!over) turns++; return p; }
        static void *wait(void *p) { char c = 0; return (void *)(read(pipes[0], &c, 1) + (long)c); }
        int main(void)
        {
            pthread_t one, two;
            void *got;
            if (getpid() != 1 || pipe(pipes))
                return 8;
            pthread_create(&one, 0, turn, 0);
            pthread_create(&two, 0, wait, 0);
            for (int i = 0; i < 40; i++) {
                long before = turns;
                raise(SIGQUIT);
                pthread_kill(one, SIGABRT);
                pthread_kill(two, SIGSEGV);
                kill(1, SIGXCPU);
                while (turns == before)
                    usleep(100);
            }
            over = 1;
            write(pipes[1], "a", 1);
            pthread_join(one, 0);
            pthread_join(two, &got);
            printf("%ld\n", (long)got);
            return 4;
        }"#;
    let dir = TempDir::new();
    program(dir.path(), "survives", SURVIVES);
    let survives = "unshare --pid --fork ./survives; echo $?";
    let native = in_folder(dir.path(), survives);
    if native.stdout != b"98\n4\n" {
        eprintln!("skipped: no namespace of processes: {native:?}");
        return;
    }
    for mode in ["run", "stat -o counts"] {
        let script = format!("\"$LWP\" {mode} --no-cache -- {survives}");
        let outcome = in_folder(dir.path(), &script);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "98\n4\n", "{mode}: {said}");
    }
}
