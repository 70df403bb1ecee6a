//! Exports for analysts: calls as CSV, questions on a page, costs at dated prices, partitions before they are dropped.

use callgate_core::domain::{
    budget::Usage, call::Request, ids::ModelName, outcome::OutcomeStatus, report::OutcomeReport,
};
use callgate_net::clock::Clock;
use callgate_store::{CallRange, CopyError, ModelPrices, copy_calls, retain, set_prices};
use sqlx::AssertSqlSafe;

use crate::common::{
    citus,
    gates::{ask, evaluate, gate, policy, record, report, run_call, success},
    postgres::Postgres,
};

fn model(name: &str) -> Option<ModelName> {
    ModelName::parse("usage.model", name).ok()
}

async fn csv(postgres: &Postgres, range: CallRange<'_>) -> Result<String, CopyError> {
    let mut written = Vec::new();
    let bytes = copy_calls(postgres.options.clone(), &range, &mut written).await?;
    assert_eq!(bytes, written.len() as u64);
    Ok(String::from_utf8(written).expect("UTF-8"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_calls_has_a_header_and_no_cell_that_is_a_formula() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let formulas = ["=1+1", "+1", "-1", "@sum(a1)"];
    for (n, name) in formulas.iter().enumerate() {
        let request = Request { model: model(name), ..ask(&format!("s{n}"), "c,\"1\"", name, "{}") };
        run_call(&gate, request, "ok").await;
    }
    run_call(&gate, ask("=plain", "c1", "look", "{}"), "ok").await;
    let all = CallRange { tenant: "default", since: "yesterday", until: "tomorrow" };
    let text = csv(&postgres, all).await.expect("exported");
    let mut lines = text.lines();
    assert!(lines.next().expect("a header").starts_with("tenant_id,tenant,root_id,session_id,call_id,"), "{text}");
    assert_eq!(lines.clone().count(), 5, "{text}");
    for cell in lines.flat_map(|line| line.split(',')) {
        let is_number = cell.parse::<f64>().is_ok_and(|number| number >= 0.0);
        assert!(is_number || !cell.starts_with(['=', '+', '-', '@']), "{cell} of {text}");
    }
    for name in formulas {
        assert!(text.contains(&format!(",'{name},")), "{name} of {text}");
    }
    assert!(text.contains("\"c,\"\"1\"\"\""), "{text}");
    for (tenant, since) in [("another", "yesterday"), ("default", "tomorrow"), ("' or true --", "yesterday")] {
        let none = csv(&postgres, CallRange { tenant, since, until: "2100-01-01" }).await.expect("exported");
        assert_eq!(none.lines().count(), 1, "{tenant}: {none}");
    }
    let error =
        csv(&postgres, CallRange { tenant: "default", since: "soon", until: "now" }).await.expect_err("no time");
    assert!(error.to_string().contains("soon"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_costs_are_those_of_all_reports_at_the_price_of_the_day() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let usage =
        |input_tokens, cache_read_tokens| Usage { input_tokens, cache_read_tokens, cost_micros: 5, ..Usage::default() };
    let of = |name: &str| Request { model: model(name), usage: usage(1_000_000, 0), ..ask("s", name, "look", "{}") };
    evaluate(&gate, of("large")).await;
    for status in [OutcomeStatus::Running, OutcomeStatus::Running] {
        let told = OutcomeReport { model: model("large"), usage: usage(0, 500_000), ..report("s", "large", status) };
        record(&gate, told).await;
    }
    record(&gate, success("s", "large", "ok")).await;
    run_call(&gate, of("unpriced"), "ok").await;
    let text = "prices:
  - {model: large, valid_from: 2020-01-01, input: 99, output: 99}
  - {model: large, valid_from: 2021-01-01, input: 3, output: 15, cache_read: 0.3}
  - {model: large, valid_from: 2999-01-01, input: 1, output: 1}
";
    let prices = ModelPrices::parse(text).expect("good prices");
    for _ in 0..2 {
        set_prices(postgres.options.clone(), &prices).await.expect("stored");
    }
    let costs = "select model, input_tokens, cache_read_tokens, cost_micros, cache_saved_micros, reported_micros,
        price_from from model_costs order by 1";
    let expected = ["(large,1000000,1000000,3300000,2700000,15,2021-01-01)", "(unpriced,1000000,0,,,5,)"];
    assert_eq!(postgres.rows(costs).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_of_a_partition_is_whole_before_it_is_dropped() {
    if citus::lacks("it moves rows between partitions by hand") {
        return;
    }
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    run_call(&gate, ask("old", "c1", "look", "{}"), "an old result").await;
    let mut sql = "begin; update callgate.call_tree set epoch = '2025-01-15', last_at = '2025-01-16';".to_owned();
    for table in ["call", "outcome"] {
        sql += &format!(
            "create table callgate.{table}_2025_01 partition of callgate.{table}
               for values from ('2025-01-01') to ('2025-02-01');
             update callgate.{table} set epoch = '2025-01-15';"
        );
    }
    sqlx::raw_sql(AssertSqlSafe(sql + "commit")).execute(&mut postgres.connect().await).await.expect("moved");
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("none");
    let run = async |to| retain(postgres.options.clone(), 90, Clock::System.now(), Some(to)).await;
    run(&gone).await.expect_err("no folder");
    assert_eq!(postgres.number("select count(*) from call_2025_01").await, 1, "nothing is dropped unexported");
    let (_, retained) = run(folder.path()).await.expect("dropped");
    assert_eq!(retained.dropped, ["call_2025_01", "outcome_2025_01"]);
    let read = |name| std::fs::read_to_string(folder.path().join(name)).expect("a file");
    assert!(read("call_2025_01.csv").lines().nth(1).is_some_and(|line| line.contains("old")));
    assert!(read("outcome_2025_01.csv").contains("an old result"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_of_an_analyst_are_queries_that_run() {
    if citus::lacks("the nodes log in to each other as whoever asks, and want to know each role's password") {
        return;
    }
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    run_call(&gate, ask("s", "c1", "pay", "{}"), "paid").await;
    evaluate(&gate, ask("s", "c2", "pay", "{}")).await;
    assert!(gate.store.roll_up().await.expect("counted"));
    let page = include_str!("../../deploy/sql/questions.md");
    let queries: Vec<&str> = page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(queries.len(), 20);
    let mut analyst = postgres.connect().await;
    sqlx::raw_sql("set role callgate_analyst").execute(&mut analyst).await.expect("the role is there");
    for query in queries {
        let rows = sqlx::raw_sql(AssertSqlSafe(query)).execute(&mut analyst).await;
        rows.unwrap_or_else(|error| panic!("{query}: {error}"));
    }
}
