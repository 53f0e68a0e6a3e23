//! Statements for other engines, as they were looked at. What has changed on purpose is taken over
//! with `LWP_BLESS=1`.

use crate::shared::facts;
use crate::shared::store;

use std::path::Path;

use facts::facts;
use store::Store;

/// Statements without the names that differ from run to run: those of the store and of its files.
fn lasting(store: &Store, text: &str) -> String {
    let text = text.replace(store.path.to_str().unwrap(), "/srv/store");
    let part = |part: &str| match part.strip_suffix(".parquet").and_then(|it| it.rsplit_once('/')) {
        Some((folder, _)) => format!("{folder}/FILE.parquet"),
        None => part.to_owned(),
    };
    text.split('\'').map(part).collect::<Vec<_>>().join("'")
}

#[test]
fn statements_for_other_engines_are_those_that_were_looked_at() {
    let store = Store::new();
    store.add(&facts(1, 1));
    for engine in ["duckdb", "spark", "trino"] {
        let is = lasting(&store, &store.fleet(&["views", "--engine", engine]));
        let name = format!("tests/golden/views.{engine}.sql");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        if std::env::var_os("LWP_BLESS").is_some() {
            std::fs::write(&file, &is).unwrap();
        }
        let wanted = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(is == wanted, "{name} is not what is printed:\n{is}");
    }
}
