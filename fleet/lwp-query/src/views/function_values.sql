create view function_values as
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
select recording, started, project, benchmark, branch, "commit", host, func, module, function, event, "value", "interval", "date" from functions where event is not null
