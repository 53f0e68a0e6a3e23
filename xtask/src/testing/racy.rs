//! Tests that depend on turns or on time.
//!
//! Each of them has failed once where the product was right, on a machine that was busy, or cannot
//! but look at a clock. They wait for events now; `cargo xtask stress --loaded --racy --rounds 50`
//! is the proof.

/// The beginnings of their full names.
#[rustfmt::skip] // A table: one test, or one kind of test, a line.
pub const RACY: &[&str] = &[
    "lwp-tests::it::programs::signals::ignored",          // signals that come at any moment
    "lwp-tests::it::programs::signals::defaulted_on_the_way",
    "lwp-tests::it::programs::signals::interrupted_calls",
    "lwp-tests::it::programs::signals::stop_and_continue",
    "lwp-tests::it::programs::signals::waiting",
    "lwp-tests::it::programs::signals::alarm_storm",
    "lwp-tests::it::programs::system::timers",            // clocks themselves
    "lwp-tests::it::programs::code::changed_while_busy",  // a host that gets no processor
    "lwp-tests::it::programs::code::cross_modified",
    "lwp-tests::it::programs::processes::job_control",
    "lwp-tests::it::programs::processes::states",
    "lwp-tests::it::programs::processes::in_calls",
    "lwp-tests::it::programs::threads::signals_and_threads",
    "lwp-tests::it::programs::threads::process_exit",
    "lwp-tests::it::core_dumps::",                        // threads that are found where they are
    "lwp-tests::it::limits::replaced_while",
    "lwp-tests::it::self_profiling::lwp_spec_7_",         // rings that are read while they fill
    "lwp-cli::it::attach::",                              // processes that go on meanwhile
    "lwp-cli::it::unnoticed::",
    "lwp-cli::it::beginnings::",                          // kills at any moment
    "lwp-cli::it::stat::interrupts_are_left_to_the_program",
    "lwp-cli::it::stat::daemons_are_left_behind_unharmed",
    "lwp-cli::it::stat::intervals_add_up_to_the_whole",
    "lwp-cli::it::first_steps::an_attached_process_has_its_own_times",
    "lwp-cli::it::cache::",                               // translations that are kept beside runs
    "lwp-cli::it::top::",
    "lwp-cli::it::languages::java_names_its_methods_without_being_told_to",
    "cpc-tools::it::cputrack::",                          // ticks
    "lwp-pctx-core::processes::",
    "lwp-pctx::it::",
    "lwp-process::waiting::",
];
