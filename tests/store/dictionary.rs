//! Data dictionary: `deploy/sql/dictionary.md`, generated from the comments of the views.

use std::{env, fmt::Write as _, fs};

use crate::common::{gates::store, postgres::Postgres};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/sql/dictionary.md");
const HEAD: &str = "# Data dictionary

Every view that the role `callgate_analyst` reads, with its columns, for analysts. Read [the ready queries](README.md)
first. The comments of the views are its source. `UPDATE=1 cargo nextest run --test store -E 'test(dictionary)'` writes
it.
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dictionary_has_the_comment_of_every_view_and_column() {
    let postgres = Postgres::start().await;
    drop(store(&postgres).await);
    let columns: Vec<(String, String, String, String, String)> = sqlx::query_as(
        "select c.relname::text, obj_description(c.oid, 'pg_class'), a.attname::text,
           format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'callgate'::regnamespace and c.relkind = 'v' order by c.relname, a.attnum",
    )
    .fetch_all(&mut postgres.connect().await)
    .await
    .expect("the columns");
    assert!(columns.len() > 200, "the query finds the columns");
    let (mut page, mut view) = (HEAD.to_owned(), String::new());
    for (of, about, name, kind, meaning) in columns {
        if of != view {
            write!(page, "\n## {of}\n\n{about}\n\n| column | type | meaning |\n|---|---|---|\n").expect("a text");
            view = of;
        }
        let kind = kind.replace("timestamp with time zone", "timestamptz").replace("double precision", "float8");
        writeln!(page, "| `{name}` | {kind} | {} |", meaning.replace('|', "\\|")).expect("a text");
    }
    if env::var("UPDATE").is_ok() {
        fs::write(PAGE, &page).expect("writable");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "deploy/sql/dictionary.md differs from the comments: run with UPDATE=1");
}
