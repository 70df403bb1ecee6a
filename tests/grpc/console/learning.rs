//! Learning pages and the API below them: visibility of retries.

use std::time::Duration;

use callgate_core::domain::{audit::Actor, identity::Role, tenant::Quotas};
use callgate_proto::{
    time::millis,
    v1::{
        self, Decision, FailureKind, GetRetryHistoryRequest, GetRetryHistoryResponse, OutcomeStatus,
        profile_service_client::ProfileServiceClient,
    },
};
use callgate_server::gate::TenantChange;

use super::{Browser, serve_console};
use crate::{
    common::{
        gates::policy,
        wire::{Plane, call, evaluate_as, outcome, question, record_as, success},
    },
    credentials::{bearer, token, who},
};

const BROKEN: &str = "500 Internal Server Error <script>alert(1)</script>";

/// `sessions` fail once and retry as advised; the retries of the first `mended` succeed.
async fn record_retries(plane: &Plane, sessions: usize, mended: usize) {
    let (agent, _) = token(&plane.gate, who("bot", &[Role::Agent])).await;
    let mut client = plane.client().await;
    for n in 0..sessions {
        let (session, arguments) = (format!("s{n}"), format!(r#"{{"item":{n}}}"#));
        let failed = |id: &str| {
            let error =
                v1::ToolError { http_status: Some(500), message: BROKEN.to_owned(), ..v1::ToolError::default() };
            v1::RecordRequest { error: Some(error), ..outcome(&session, id, OutcomeStatus::Error) }
        };
        let ask = |id: &str| question(&session, call(id, "get_quote", &arguments));
        evaluate_as(Some(&agent), &mut client, ask("first")).await;
        let advice = record_as(Some(&agent), &mut client, failed("first")).await.advice.expect("advice");
        tokio::time::sleep(Duration::from_millis(millis(advice.retry_after.as_ref()))).await;
        let verdict = evaluate_as(Some(&agent), &mut client, ask("retry")).await;
        assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
        let report = if n < mended { success(&session, "retry", "12.50") } else { failed("retry") };
        record_as(Some(&agent), &mut client, report).await;
    }
    plane.gate.decisions.learn().await.expect("counted");
}

async fn history(plane: &Plane, token: &str, asked: GetRetryHistoryRequest) -> GetRetryHistoryResponse {
    let mut profiles = ProfileServiceClient::new(plane.channel().await);
    profiles.get_retry_history(bearer(token, asked)).await.expect("a history").into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_outcomes_are_shown_to_their_own_tenant_alone() {
    let plane = serve_console(&policy(&["same_call"])).await;
    let (ada, _) = token(&plane.gate, who("ada", &[Role::Analyst])).await;
    record_retries(&plane, 3, 1).await;

    let told = history(&plane, &ada, GetRetryHistoryRequest::default()).await;
    let [day] = &told.days[..] else { panic!("{told:#?}") };
    assert_eq!((day.trials, day.successes), (3, 1));
    let [bin] = &told.calibration[..] else { panic!("{told:#?}") };
    assert_eq!((bin.trials, bin.tenth), (3, (bin.predicted * 10.0).floor() as u32 + 1), "{bin:?}");
    assert!((bin.observed - 1.0 / 3.0).abs() < 1e-9, "{bin:?}");
    let worth = told.worth.expect("told");
    assert_eq!((worth.retries, worth.succeeded, worth.failed, worth.against_advice), (3, 1, 2, 0));
    assert!(
        millis(worth.lost_time.as_ref()) > 0 && told.probes.is_empty() && told.data_start_time.is_none(),
        "{told:#?}"
    );

    let of = |tool: &str, failure: FailureKind| GetRetryHistoryRequest {
        tool: tool.to_owned(),
        failure: failure.into(),
        days: 1,
    };
    let count = |told: &GetRetryHistoryResponse| (told.days.len(), told.worth.expect("told").retries);
    for (asked, counted) in [
        (of("get_quote", FailureKind::Internal), (1, 3)),
        (of("get_quote", FailureKind::Timeout), (0, 0)),
        (of("other", FailureKind::Unspecified), (0, 0)),
    ] {
        assert_eq!(count(&history(&plane, &ada, asked).await), counted);
    }

    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("there was no such tenant")
    };
    let (stranger, _) =
        plane.gate.identities.create_token(acme.id, who("hank", &[Role::Admin]), None, &root).await.expect("a token");
    assert_eq!(count(&history(&plane, &stranger, GetRetryHistoryRequest::default()).await), (0, 0));
    let mut stranger = Browser::with_token(&plane, &stranger).await;
    assert!(stranger.get("/learning").await.ok().contains("No failed call was retried"));

    let mut ada = Browser::with_token(&plane, &ada).await;
    for path in
        ["/learning", "/learning?kind=FAILURE_KIND_INTERNAL&days=1", "/learning/get_quote/FAILURE_KIND_INTERNAL"]
    {
        let page = ada.get(path).await.ok();
        assert!(page.contains("Of 3 completed retries") && page.contains("1 succeeded"), "{path}: {page}");
        assert!(page.contains("get_quote") && !page.contains("<script>alert"), "{path}");
    }
    let page = ada.get("/learning?kind=FAILURE_KIND_TIMEOUT").await.ok();
    assert!(page.contains("No failed call was retried") && page.contains("No retry profiles"), "{page}");
    assert_eq!(ada.get("/learning?kind=none").await.status, http::StatusCode::BAD_REQUEST);
}
