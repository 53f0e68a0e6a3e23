create or replace view recordings as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "instructions", "branches", "branches_taken", "conditional_branches", "conditional_taken", "calls", "returns", "indirect_branches", "id", "content", "command", "mode", "source", "tool_version", "kernel", "cpu", "deterministic", "complete", "parent_commit", "pull_request", "run_url", "labels", "rows_total", "rows_function", "rows_line", "rows_call", "rows_stack", "rows_module", "date" from facts where kind = 'recording';
create or replace view totals as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "event", "value", "interval", "date" from facts where kind = 'total';
create or replace view functions as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "func", "module", "function", "file", "line", "instructions", "branches", "branches_taken", "conditional_branches", "conditional_taken", "calls", "returns", "indirect_branches", "entered", "inclusive", "event", "value", "interval", "date" from facts where kind = 'function';
create or replace view lines as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "func", "module", "function", "file", "line", "instructions", "branches", "branches_taken", "conditional_branches", "conditional_taken", "calls", "returns", "indirect_branches", "event", "value", "interval", "date" from facts where kind = 'line';
create or replace view calls as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "func", "module", "function", "callee", "callee_module", "callee_function", "call_kind", "entered", "date" from facts where kind = 'call';
create or replace view stacks as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "func", "module", "function", "stack", "frames", "event", "value", "interval", "date" from facts where kind = 'stack';
create or replace view modules as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "module", "build_id", "path", "date" from facts where kind = 'module';
create or replace view notes as select "started", "project", "benchmark", "commit", "text", "author", "date" from facts where kind = 'note';
create or replace view rollups as select "recording", "started", "project", "benchmark", "branch", "commit", "host", "event", "value", "interval", "id", "command", "mode", "source", "tool_version", "kernel", "cpu", "deterministic", "complete", "parent_commit", "labels", "runs", "least", "greatest", "keys", "date" from facts where kind = 'rollup';
create or replace view recording_values as
select recording, started, project, benchmark, branch, "commit", host, 'instructions' as event, "instructions" as "value", cast(null as bigint) as "interval", "date" from recordings where "instructions" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'branches' as event, "branches" as "value", cast(null as bigint) as "interval", "date" from recordings where "branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'branches-taken' as event, "branches_taken" as "value", cast(null as bigint) as "interval", "date" from recordings where "branches_taken" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'conditional-branches' as event, "conditional_branches" as "value", cast(null as bigint) as "interval", "date" from recordings where "conditional_branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'conditional-taken' as event, "conditional_taken" as "value", cast(null as bigint) as "interval", "date" from recordings where "conditional_taken" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'calls' as event, "calls" as "value", cast(null as bigint) as "interval", "date" from recordings where "calls" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'returns' as event, "returns" as "value", cast(null as bigint) as "interval", "date" from recordings where "returns" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, 'indirect-branches' as event, "indirect_branches" as "value", cast(null as bigint) as "interval", "date" from recordings where "indirect_branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, event, "value", "interval", "date" from totals where event is not null;
create or replace view function_values as
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'instructions' as event, "instructions" as "value", cast(null as bigint) as "interval", "date" from functions where "instructions" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'branches' as event, "branches" as "value", cast(null as bigint) as "interval", "date" from functions where "branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'branches-taken' as event, "branches_taken" as "value", cast(null as bigint) as "interval", "date" from functions where "branches_taken" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'conditional-branches' as event, "conditional_branches" as "value", cast(null as bigint) as "interval", "date" from functions where "conditional_branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'conditional-taken' as event, "conditional_taken" as "value", cast(null as bigint) as "interval", "date" from functions where "conditional_taken" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'calls' as event, "calls" as "value", cast(null as bigint) as "interval", "date" from functions where "calls" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'returns' as event, "returns" as "value", cast(null as bigint) as "interval", "date" from functions where "returns" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, 'indirect-branches' as event, "indirect_branches" as "value", cast(null as bigint) as "interval", "date" from functions where "indirect_branches" is not null
union all
select recording, started, project, benchmark, branch, "commit", host, func, module, function, event, "value", "interval", "date" from functions where event is not null;
create or replace view series as
select started, project, benchmark, branch, "commit", host, event, "interval", cast(1 as bigint) as runs, "value" as least, "value" as greatest, "value", "date" from recording_values
union all
select started, project, benchmark, branch, "commit", host, event, "interval", runs, least, greatest, "value", "date" from rollups;
