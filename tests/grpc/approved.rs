//! Approvers of a call in SQL, exports and explanations: of its own request, or of an edited one.

use callgate_proto::v1::{self, Decision, session_service_client::SessionServiceClient};

use crate::{
    common::{
        until,
        wire::{Plane, evaluate, record},
    },
    edited::{CHOSEN, approvals, chosen_by, edit, failure_report, open_request, pay, plane},
    people::{answer, resolve},
};

/// The approver by the view, the approval by the export, and the explanation of the asking rule.
pub(crate) async fn read_approver(plane: &Plane, session: &str, call_id: &str) -> (String, bool, String) {
    let by = format!("select approved_by from tool_call where (session_id, call_id) = ('{session}', '{call_id}')");
    let by = plane.postgres.rows(&by).await.concat();
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let (session_id, call_id) = (session.to_owned(), call_id.to_owned());
    let wanted =
        v1::ExportCallsRequest { session_id: session_id.clone(), call_id: call_id.clone(), ..Default::default() };
    let mut calls = sessions.export_calls(wanted).await.expect("calls").into_inner();
    let call = calls.message().await.expect("a message").expect("a call");
    let told = sessions.explain_call(v1::ExplainCallRequest { session_id, call_id }).await.expect("an explanation");
    let tier = told.into_inner().rules.into_iter().find(|one| one.rule == "tier").expect("the rule");
    (by, call.approved, tier.no_finding_reason)
}

/// Without an approver, in all of them.
async fn by_nobody(plane: &Plane, call_id: &str) {
    let (by, is_approved, _) = read_approver(plane, "s", call_id).await;
    assert_eq!(
        (by.as_str(), is_approved, chosen_by(plane, "s", call_id).await.as_str()),
        ("()", false, ""),
        "{call_id}"
    );
}

/// SQL interprets an edited approval like the engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_to_other_arguments_counts_in_its_time_under_its_policy_and_once() {
    let plane = plane().await;
    let (mut client, approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.expect("an answer");
    assert_eq!(evaluate(&mut client, pay("s", "c2", CHOSEN)).await.decision(), Decision::Allow);
    let by_eve = || ("(eve)".to_owned(), true, "tier pays: hitl; eve approved it".to_owned());
    assert_eq!(read_approver(&plane, "s", "c2").await, by_eve());
    by_nobody(&plane, "c1").await;
    for change in ["{edit,until_ms}', '1000'", "{edit,policy}', '\"another\"'"] {
        let tamper = async |to: &str| {
            assert_eq!(plane.postgres.tamper(&format!("update session_event set detail = {to}")).await, 1);
        };
        tamper(&format!("jsonb_set(jsonb_set(detail, '{{kept}}', detail -> 'edit'), '{change})")).await;
        by_nobody(&plane, "c2").await;
        tamper("jsonb_set(detail, '{edit}', detail -> 'kept')").await;
        assert_eq!(read_approver(&plane, "s", "c2").await, by_eve());
    }
    // It was used up: the same call needs a request of its own, or runs without approval.
    let error = v1::ToolError { http_status: Some(429), message: "too many".into(), ..Default::default() };
    let report =
        v1::RecordRequest { caller: pay("s", "c2", "").caller, error: Some(error), ..failure_report("s", "c2") };
    record(&mut client, report).await;
    let mut asked = String::new();
    until("the wait before a retry", async || {
        asked = evaluate(&mut client, pay("s", "c3", CHOSEN)).await.approval_id;
        !asked.is_empty()
    })
    .await;
    resolve(approvals, answer(&asked, "fay", true, "")).await.expect("an answer");
    assert_eq!(evaluate(&mut client, pay("s", "c3", CHOSEN)).await.decision(), Decision::Allow);
    assert_eq!(read_approver(&plane, "s", "c3").await.0, "(fay)");
    let forgotten = "delete from session_event where actor = 'fay'";
    assert_eq!(plane.postgres.tamper(forgotten).await, 1);
    by_nobody(&plane, "c3").await;
}
