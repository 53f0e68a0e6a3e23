//! Queries that never end, or take all memory: every kind of join, and more.

/// Names of queries, and their text without the table `many`.
pub const HOSTILE: [(&str, &str); 12] = [
    ("hash join", "select count(*) from many a join many b on a.k = b.k join many c on b.k = c.k"),
    ("left join", "select count(*) from many a left join many b on a.k = b.k and a.n + b.n = -1"),
    ("right join", "select count(*) from many a right join many b on a.k = b.k and a.n + b.n < 0"),
    ("full join", "select count(*) from many a full join many b on a.k = b.k and a.n + b.n = -1"),
    (
        "semi join",
        "select count(*) from many a where exists (select 1 from many b where a.k = b.k and a.n + b.n = -1)",
    ),
    (
        "anti join",
        "select count(*) from many a where not exists (select 1 from many b where a.k = b.k and a.n + b.n = -1)",
    ),
    ("loops", "select count(*) from many a join many b on a.n + b.n = -1"),
    ("cross join", "select count(*) from many a, many b, many c"),
    (
        "recursion",
        "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
    ),
    (
        "window",
        "select max(s) from (select sum(a.n) over (order by a.n + b.n) as s from many a, many b)",
    ),
    ("a series", "select sum(value) from generate_series(1, 9000000000000)"),
    ("a text", "select length(repeat(repeat('x', 100000), 100000000))"),
];

/// A query with the table `many`, whose 3 million rows all have the same key.
pub fn query(hostile: &str) -> String {
    let many = "many as (select value as n, 1 as k from generate_series(1, 3000000))";
    match hostile.strip_prefix("with recursive ") {
        Some(rest) => format!("with recursive {many}, {rest}"),
        None => format!("with {many} {hostile}"),
    }
}
