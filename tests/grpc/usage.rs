//! Usage and the parts of a fleet: sums equal the calls, and a part that hangs or fails leaves the others.

use callgate_core::{domain::identity::Role, policy};
use callgate_proto::v1::{self, FleetPart, UsageDimension, fleet_service_client::FleetServiceClient};
use sqlx::Connection as _;
use tonic::Code;

use crate::{
    common::{
        until,
        wire::{Plane, call, evaluate, question, record, success},
    },
    console::{Browser, serve_console},
    credentials::{bearer, token, who},
    fleet::{Fleets, POLICY, story},
};

/// Usage since so many hours, in total and by tool.
async fn usage(fleets: &mut Fleets, hours: i64, now: i64) -> (v1::UsageTotals, v1::GetUsageResponse) {
    let start_time = Some(prost_types::Timestamp { seconds: now - hours * 3_600, nanos: 0 });
    let by = [UsageDimension::Tool, UsageDimension::Model, UsageDimension::Time].map(Into::into).to_vec();
    let request = v1::GetUsageRequest { start_time, group_by: by, ..Default::default() };
    let usage = fleets.get_usage(request).await.expect("an answer").into_inner();
    (usage.total.expect("a total"), usage)
}

fn group<'a>(usage: &'a v1::GetUsageResponse, dimension: UsageDimension, name: &str) -> &'a v1::UsageTotals {
    let found = usage.groups.iter().find(|one| one.dimension() == dimension && one.name == name);
    found.and_then(|one| one.totals.as_ref()).unwrap_or_else(|| panic!("no {name}: {usage:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_that_of_the_counted_hours_and_of_the_calls_since() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    story(&mut client).await;
    evaluate(&mut client, question("paid", call("c1", "write_text", "{}"))).await;
    let used = v1::Usage { model: "large".into(), input_tokens: 1_000_000, cost_micros: 5, ..Default::default() };
    let duration = Some(prost_types::Duration { seconds: 2, nanos: 0 });
    record(&mut client, v1::RecordRequest { usage: Some(used), duration, ..success("paid", "c1", "{}") }).await;
    plane.postgres.tamper("insert into model_price values ('large', date '2020-01-01', 3000000, 0, 0, 0)").await;
    for table in ["call", "outcome"] {
        let earlier = format!("update {table} set at = at - interval '3 hours' where session_id in ('one', 'paid')");
        plane.postgres.tamper(&earlier).await;
    }
    let now = plane.postgres.number("select extract(epoch from now())::bigint").await;
    let expected = plane
        .postgres
        .rows("select sum((round = 1)::int) || ' ' || sum(saved_calls) || ' ' || sum(cost_micros) from calls")
        .await;
    let figures = |total: &v1::UsageTotals| format!("{} {} {}", total.calls, total.not_run_calls, total.cost_micros);
    let mut fleets = Fleets::new(plane.channel().await);
    let (stored, _) = usage(&mut fleets, 20, now).await;
    assert_eq!(vec![format!("(\"{}\")", figures(&stored))], expected, "before anything is counted");
    assert!(plane.gate.store.roll_up().await.expect("counted"));
    assert!(plane.postgres.number("select count(*) from calls_hourly").await > 0);
    let (total, usage_after) = usage(&mut fleets, 21, now).await;
    assert_eq!(total, stored, "counted hours, and the calls since");
    assert_eq!(total.failed_calls, 4);
    let paid = group(&usage_after, UsageDimension::Tool, "write_text");
    assert_eq!((paid.calls, paid.cost_micros, paid.priced_micros, paid.unpriced_tokens), (1, 5, 3_000_000, 0));
    assert_eq!(paid.mean_duration.map(|mean| mean.seconds), Some(2));
    assert_eq!(group(&usage_after, UsageDimension::Model, "").unpriced_tokens, 1_000, "of a model that is not named");
    let times = usage_after.groups.iter().filter(|one| one.dimension() == UsageDimension::Time);
    let by_hour: u64 = times.map(|one| one.totals.expect("totals").calls).sum();
    assert_eq!(by_hour, total.calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_of_one_tenant_and_its_period_is_bounded() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let (agent, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let (analyst, _) = token(&plane.gate, who("ada", &[Role::Analyst])).await;
    let mut fleets = FleetServiceClient::new(plane.channel().await);
    let mut code = async |token: &str, request| fleets.get_usage(bearer(token, request)).await.map_err(|no| no.code());
    assert_eq!(code(&agent, v1::GetUsageRequest::default()).await.unwrap_err(), Code::PermissionDenied);
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    for wrong in [
        v1::GetUsageRequest { start_time: at(1_000_000), ..Default::default() },
        v1::GetUsageRequest { start_time: at(4_000_000_000), ..Default::default() },
        v1::GetUsageRequest { group_by: vec![9], ..Default::default() },
        v1::GetUsageRequest { group_by: vec![1, 1], ..Default::default() },
        v1::GetUsageRequest { page_size: 501, ..Default::default() },
    ] {
        assert_eq!(code(&analyst, wrong.clone()).await.unwrap_err(), Code::InvalidArgument, "{wrong:?}");
    }
    plane.gate.identities.create_tenant("acme", &Default::default(), &"root".into()).await.expect("an answer");
    let (root, _) = token(&plane.gate, who("root", &[Role::Admin])).await;
    for name in ["acme", "none"] {
        let of_another = v1::GetUsageRequest { tenant: name.into(), ..Default::default() };
        assert_eq!(code(&analyst, of_another).await.unwrap_err(), Code::PermissionDenied, "{name}");
    }
    let of_none = v1::GetUsageRequest { tenant: "none".into(), ..Default::default() };
    assert_eq!(code(&root, of_none).await.unwrap_err(), Code::NotFound);
    let acme = v1::GetUsageRequest { tenant: "acme".into(), ..Default::default() };
    let acme = code(&root, acme).await.expect("an answer").into_inner().total.expect("a total");
    assert_eq!(acme.calls, 0, "nothing of the own tenant");
    let own = v1::GetUsageRequest { tenant: "default".into(), ..Default::default() };
    assert!(code(&analyst, own).await.expect("an answer").into_inner().total.expect("a total").calls > 0);
    let total = code(&analyst, v1::GetUsageRequest::default()).await.expect("an answer").into_inner().total;
    assert!(total.expect("a total").calls > 0);
}

/// The parts that are missing, with the text of the console's page.
async fn missing(fleets: &mut Fleets, ada: &mut Browser) -> (Vec<FleetPart>, v1::Fleet, String) {
    let fleet = fleets.get_fleet(v1::GetFleetRequest::default()).await.expect("an answer").into_inner().fleet;
    let fleet = fleet.expect("a fleet");
    (fleet.unavailable.iter().map(v1::UnavailablePart::part).collect(), fleet, ada.get("/").await.ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_part_that_hangs_or_fails_leaves_the_others() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let mut fleets = Fleets::new(plane.channel().await);
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let mut locks = plane.postgres.connect().await;
    let mut held = locks.begin().await.expect("a transaction");
    sqlx::raw_sql("lock table tool_health, model_price in access exclusive mode")
        .execute(&mut *held)
        .await
        .expect("locked");
    let (parts, fleet, html) = missing(&mut fleets, &mut ada).await;
    assert_eq!(parts, [FleetPart::Tools]);
    assert_eq!((fleet.open_approvals, fleet.stopped_sessions, fleet.active_trees), (1, 1, 4), "the others are known");
    let is_shown = |html: &str, id: &str, text: &str| {
        let (_, card) = html.split_once(&format!("id=\"card-{id}\"")).unwrap_or_else(|| panic!("no card {id}: {html}"));
        card.split_once("</div>").expect("its end").0.contains(text)
    };
    assert!(is_shown(&html, "tools", "Data unavailable: "), "{html}");
    assert!(is_shown(&html, "calls", "17 in the last minute") && is_shown(&html, "approvals", "waiting"), "{html}");
    assert!(html.contains("id=\"chart-calls\"") && !html.contains("id=\"chart-spend\""), "{html}");
    let (_, usage) = html.split_once("id=\"usage\"").expect("the usage");
    assert!(usage.contains("<strong>Data unavailable:</strong>"), "{usage}");
    held.rollback().await.expect("unlocked");
    until("the tools and the usage", async || {
        let (parts, _, html) = missing(&mut fleets, &mut ada).await;
        parts.is_empty() && html.contains("id=\"chart-spend\"")
    })
    .await;

    plane.postgres.tamper("alter table tool_health rename to gone").await;
    until("the failure to show", async || missing(&mut fleets, &mut ada).await.0 == [FleetPart::Tools]).await;
    let (_, _, html) = missing(&mut fleets, &mut ada).await;
    assert!(is_shown(&html, "tools", "Data unavailable: ") && is_shown(&html, "approvals", "waiting"), "{html}");
    plane.postgres.tamper("alter table gone rename to tool_health").await;
}
