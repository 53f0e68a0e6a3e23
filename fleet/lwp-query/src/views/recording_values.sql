create view recording_values as
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
select recording, started, project, benchmark, branch, "commit", host, event, "value", "interval", "date" from totals where event is not null
