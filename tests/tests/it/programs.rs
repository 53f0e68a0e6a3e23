//! Every test program, natively and on the virtual CPU.
//!
//! Promise: K1: which run everything cold and warm

/// One test per program, in a module per folder, and the list of them all.
///
/// ```text
/// group { name }  =>  mod group { #[test] fn name() { check_program("group/name") } }
/// ```
macro_rules! programs {
    ($($group:ident { $($name:ident)* })*) => {
        $(mod $group {
            $(#[test]
            fn $name() {
                lwp_tests::check_program(concat!(stringify!($group), "/", stringify!($name)));
            })*
        })*
        const LISTED: &[&str] = &[$($(concat!(stringify!($group), "/", stringify!($name)),)*)*];
    };
}

programs! {
    start { bare_exit bare_hello bare_branches hello arguments constructors }
    memory {
        around bad_pointers calls_about_data heap_and_stack hidden hidden_files locked mappings own_maps places
        string_faults string_instructions
    }
    threads {
        create_join futex_waits local_storage made_by_32_bits process_exit raw_clone robust_mutex
        signals_and_threads synchronization untraced vfork_spawn
    }
    processes {
        by_descriptor descriptors exec_forms fork_tree in_calls job_control many_children orphans states
        wait_forms
    }
    system {
        address_limit address_room attributes calls_of_32_bits data_limit event_loops files_of_32_bits looking_into
        personality refused_calls restartable_sequences seccomp seccomp_actions seccomp_address
        seccomp_allow_list timers tracing uprobes
    }
    boundaries {
        exchanged foreign_paths guardians kept_handles others_files parted_rights patched_copies
    }
    registers {
        asynchronous first_execution flags general red_zone segment_bases system_calls vectors
        x87_mxcsr x87_pointers
    }
    code {
        changed_by_rare_calls changed_files changed_while_busy cross_modified cut_short executable_stack far_apart
        filled_by_calls filled_on_demand generated guarded_pages load_unload next_instruction patched_beside protected_pages
        registered_buffers replaced_ahead replaced_at_once replaced_mappings reserved rewritten_in_place served_files
        two_mappings unmapped_files write_xor_execute written_ahead
    }
    counts { branch_kinds faults generated interrupted neighbours patched raised rewriting sorting string_iterations superblocks threads }
    cpu {
        across_mappings identification instruction_mix other_entries out_of_reach same_question time_stamp_faults
        transactions trap_flag
    }
    control {
        bad_jumps computed_goto coroutines count_loops exceptions long_block long_jumps
        far_jumps overlapping_code recursion rip_relative stack_forms
    }
    signals {
        segv_fixup synchronous_registers fault_codes nested masks queued interrupted_calls alternate_stack
        leave_handler action_flags waiting fatal die_by_segv die_by_term stop_and_continue alarm_storm
        context_changes defaulted_on_the_way fast_timers ignored ignored_by_turns ignored_on_the_way ignored_storm ignored_timeouts
        ignored_transfers ignored_vectors
        locked_frame user_dispatch
    }
}

#[test]
fn every_program_is_listed() {
    let mut listed: Vec<&str> = LISTED.to_vec();
    listed.sort_unstable();
    assert_eq!(lwp_tests::source_files(), listed);
}
