create or replace temporary view recordings as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `instructions`, `branches`, `branches_taken`, `conditional_branches`, `conditional_taken`, `calls`, `returns`, `indirect_branches`, `id`, `content`, `command`, `mode`, `source`, `tool_version`, `kernel`, `cpu`, `deterministic`, `complete`, `parent_commit`, `pull_request`, `run_url`, `labels`, `rows_total`, `rows_function`, `rows_line`, `rows_call`, `rows_stack`, `rows_module`, `date` from delta.`file:///srv/store` where kind = 'recording';
create or replace temporary view totals as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `event`, `value`, `interval`, `date` from delta.`file:///srv/store` where kind = 'total';
create or replace temporary view functions as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `func`, `module`, `function`, `file`, `line`, `instructions`, `branches`, `branches_taken`, `conditional_branches`, `conditional_taken`, `calls`, `returns`, `indirect_branches`, `entered`, `inclusive`, `event`, `value`, `interval`, `date` from delta.`file:///srv/store` where kind = 'function';
create or replace temporary view lines as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `func`, `module`, `function`, `file`, `line`, `instructions`, `branches`, `branches_taken`, `conditional_branches`, `conditional_taken`, `calls`, `returns`, `indirect_branches`, `event`, `value`, `interval`, `date` from delta.`file:///srv/store` where kind = 'line';
create or replace temporary view calls as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `func`, `module`, `function`, `callee`, `callee_module`, `callee_function`, `call_kind`, `entered`, `date` from delta.`file:///srv/store` where kind = 'call';
create or replace temporary view stacks as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `func`, `module`, `function`, `stack`, `frames`, `event`, `value`, `interval`, `date` from delta.`file:///srv/store` where kind = 'stack';
create or replace temporary view modules as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `module`, `build_id`, `path`, `date` from delta.`file:///srv/store` where kind = 'module';
create or replace temporary view notes as select `started`, `project`, `benchmark`, `commit`, `text`, `author`, `date` from delta.`file:///srv/store` where kind = 'note';
create or replace temporary view rollups as select `recording`, `started`, `project`, `benchmark`, `branch`, `commit`, `host`, `event`, `value`, `interval`, `id`, `command`, `mode`, `source`, `tool_version`, `kernel`, `cpu`, `deterministic`, `complete`, `parent_commit`, `labels`, `runs`, `least`, `greatest`, `keys`, `date` from delta.`file:///srv/store` where kind = 'rollup';
create or replace temporary view recording_values as
select recording, started, project, benchmark, branch, `commit`, host, 'instructions' as event, `instructions` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `instructions` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'branches' as event, `branches` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'branches-taken' as event, `branches_taken` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `branches_taken` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'conditional-branches' as event, `conditional_branches` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `conditional_branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'conditional-taken' as event, `conditional_taken` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `conditional_taken` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'calls' as event, `calls` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `calls` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'returns' as event, `returns` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `returns` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, 'indirect-branches' as event, `indirect_branches` as `value`, cast(null as bigint) as `interval`, `date` from recordings where `indirect_branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, event, `value`, `interval`, `date` from totals where event is not null;
create or replace temporary view function_values as
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'instructions' as event, `instructions` as `value`, cast(null as bigint) as `interval`, `date` from functions where `instructions` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'branches' as event, `branches` as `value`, cast(null as bigint) as `interval`, `date` from functions where `branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'branches-taken' as event, `branches_taken` as `value`, cast(null as bigint) as `interval`, `date` from functions where `branches_taken` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'conditional-branches' as event, `conditional_branches` as `value`, cast(null as bigint) as `interval`, `date` from functions where `conditional_branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'conditional-taken' as event, `conditional_taken` as `value`, cast(null as bigint) as `interval`, `date` from functions where `conditional_taken` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'calls' as event, `calls` as `value`, cast(null as bigint) as `interval`, `date` from functions where `calls` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'returns' as event, `returns` as `value`, cast(null as bigint) as `interval`, `date` from functions where `returns` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, 'indirect-branches' as event, `indirect_branches` as `value`, cast(null as bigint) as `interval`, `date` from functions where `indirect_branches` is not null
union all
select recording, started, project, benchmark, branch, `commit`, host, func, module, function, event, `value`, `interval`, `date` from functions where event is not null;
create or replace temporary view series as
select started, project, benchmark, branch, `commit`, host, event, `interval`, cast(1 as bigint) as runs, `value` as least, `value` as greatest, `value`, `date` from recording_values
union all
select started, project, benchmark, branch, `commit`, host, event, `interval`, runs, least, greatest, `value`, `date` from rollups;
