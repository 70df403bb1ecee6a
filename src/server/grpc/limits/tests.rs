//! The numbers in the comments of `proto/`, with their units: each is a constant, or a fact, that is listed here for
//! its element. No word of a comment is compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

use super::*;
use crate::{
    gate::{BATCH_MAX, BEFORE_MAX, UNKNOWN_TOOLS_MAX},
    grpc::{audit::ANCHORS_MAX, status::PROBLEM_BYTES_MAX},
};
use callgate_core::{
    domain::{
        approval_notes::{CLAIM_MS, COMMENTS_MAX},
        budget::RAISED_MAX,
        calls::{JUDGMENTS_COUNTED_MAX, NAMED_CALLS_MAX},
        control::PLAN_MAX,
        grant::GRANTS_MAX,
        json::{BYTES_MAX, DEPTH_MAX},
        outcome::Confidence,
        quality::{COERCED_MAX, PAIRS_MAX, TOLD_MAX},
        retries::{CORRECTIONS_MAX, RETRIES_MAX},
        rollout::{AGENTS_MAX, SHARE_MAX},
        session_state::{LAST_CALLS_DEFAULT, SUMMARY_TOKENS_DEFAULT, SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MIN},
        tenant::{MONTHS_DAYS_MIN, TENANT_NAME_BYTES_MAX, TERM_DAYS_MAX},
        tool_descriptions::{DESCRIPTION_BYTES_MAX, DIGEST_DIGITS, REPORTED_MAX, SCHEMA_BYTES_MAX},
        tree::{OPEN_MAX, SESSIONS_MAX},
    },
    rules::budget::HINT_FROM_PERCENT,
};

/// Elements by their names without the package, parted by spaces, and the numbers in the comment of each.
type Numbers = Vec<(&'static str, Vec<String>)>;

fn bytes(n: impl Display) -> String {
    format!("{n} bytes")
}

fn seconds(ms: u64) -> String {
    format!("{} seconds", ms / 1_000)
}

fn days(n: impl Display) -> String {
    format!("{n} days")
}

fn plain<const N: usize>(numbers: [&dyn Display; N]) -> Vec<String> {
    numbers.map(|number| number.to_string()).into()
}

fn numbers_of_calls() -> Numbers {
    let (medium, high) = (Confidence::MEDIUM_TRIALS, Confidence::HIGH_TRIALS);
    let transport = [bytes(MESSAGE_BYTES_MAX), bytes(METADATA_BYTES_MAX)];
    vec![
        ("GateService", [plain([&OPEN_MAX, &SESSIONS_MAX]), transport.into()].concat()),
        ("types.proto", vec![bytes(NAME_BYTES_MAX)]),
        ("EvaluateRequest.max_wait BatchEvaluateRequest.max_wait", vec![seconds(WAIT_MS_MAX)]),
        ("BatchEvaluateRequest.calls", plain([&BATCH_MAX])),
        (
            "EvaluateRequest.include_budgets BatchEvaluateRequest.include_budgets RecordRequest.include_budgets \
             RecordResponse.budgets Verdict.budgets",
            vec![format!("{HINT_FROM_PERCENT} %")],
        ),
        (
            "RecordRequest.result SettleOutcomeRequest.result ResolveApprovalRequest.edited_arguments_json",
            vec![bytes(BYTES_MAX)],
        ),
        ("RecordRequest.result_digest", vec![bytes(DIGEST_BYTES_MAX)]),
        ("RecordRequest.witness_after ToolCall.witness", vec![bytes(WITNESS_BYTES_MAX)]),
        ("ToolCall.arguments_json", [vec![bytes(BYTES_MAX)], plain([&DEPTH_MAX])].concat()),
        ("ToolError.message SettleOutcomeRequest.error_message", vec![bytes(ERROR_BYTES_MAX)]),
        ("ToolError.http_status", plain([HTTP_STATUS.start(), HTTP_STATUS.end()])),
        ("ToolError.grpc_status", plain([GRPC_STATUS.start(), GRPC_STATUS.end()])),
        ("Confidence.CONFIDENCE_LOW", plain([&medium])),
        ("Confidence.CONFIDENCE_MEDIUM", plain([&medium, &(high - 1.0)])),
        ("Confidence.CONFIDENCE_HIGH", plain([&high])),
        ("GetSessionStateRequest.last_calls", plain([&LAST_CALLS_MAX, &LAST_CALLS_DEFAULT])),
        (
            "GetSessionStateRequest.summary_tokens MarkCompactedRequest.summary_tokens",
            plain([&SUMMARY_TOKENS_MIN, &SUMMARY_TOKENS_MAX, &SUMMARY_TOKENS_DEFAULT]),
        ),
        ("DescribeToolsRequest.tools", plain([&DESCRIBED_MAX])),
        ("ReportToolsRequest.tools", plain([&REPORTED_MAX])),
        ("ReportedTool.digest", plain([&DIGEST_DIGITS])),
        ("ReportedTool.description", vec![bytes(DESCRIPTION_BYTES_MAX)]),
        ("ReportedTool.schema_json", vec![bytes(SCHEMA_BYTES_MAX)]),
        (
            "RecordRequest.progress ToolCall.justification ResolveApprovalRequest.reason \
             ResolveApprovalsRequest.reason CommentApprovalRequest.text \
             WithdrawApprovalRequest.reason CreateGrantRequest.reason RevokeGrantRequest.reason \
             ApplyPolicyRequest.note ActivatePolicyRequest.note RollbackPolicyRequest.note \
             StartPolicyRolloutRequest.note EndPolicyRolloutRequest.note ForgetRequest.reason \
             ExportSubjectRequest.reason HaltRequest.reason ResumeRequest.reason SetPhaseRequest.reason \
             SettleOutcomeRequest.reason RaiseBudgetRequest.reason SuspendTenantRequest.reason \
             ResumeTenantRequest.reason DeleteTenantRequest.reason ResolveToolDescriptionRequest.reason",
            vec![bytes(NOTE_BYTES_MAX)],
        ),
    ]
}

fn numbers_of_lists_and_commands() -> Numbers {
    vec![
        (
            "ListApprovalsRequest.page_size ListAuditEntriesRequest.page_size ListGrantsRequest.page_size \
             ListRetryProfilesRequest.page_size ListHaltsRequest.page_size ListTenantsRequest.page_size \
             ListTokensRequest.page_size",
            plain([&PAGE_MAX, &PAGE_DEFAULT]),
        ),
        (
            "ListPoliciesRequest.page_size ListSessionsRequest.page_size ListCallsRequest.page_size \
             ListNamesRequest.max_names",
            plain([&PAGE_MAX, &SHORT_PAGE_DEFAULT]),
        ),
        ("ListNamesResponse", plain([&NAMED_CALLS_MAX])),
        ("GetSessionResponse.refused_calls", plain([&JUDGMENTS_COUNTED_MAX])),
        ("ListApprovalsRequest.group CreateTokenRequest.name", vec![bytes(TEXT_BYTES_MAX)]),
        ("ListApprovalsResponse.total_size", plain([&crate::gate::OPEN_MAX])),
        ("ApprovalService", plain([&COMMENTS_MAX])),
        ("ApprovalService.ClaimApproval", vec![(CLAIM_MS / 60_000).to_string()]),
        ("AuditService.ListAuditEntries", vec!["20000".to_owned()]),
        ("ListToolDescriptionsRequest.page_size", plain([&crate::grpc::tool_descriptions::PAGE_MAX])),
        ("GetUsageRequest.page_size", plain([&100, &500])),
        ("GetUsageRequest.start_time", vec!["24".to_owned(), "400 days".to_owned()]),
        ("UsageDimension.USAGE_DIMENSION_TIME", vec!["48".to_owned()]),
        ("ListApprovalsResponse.groups", plain([&APPROVAL_GROUPS_MAX])),
        ("ResolveApprovalsRequest.approvals", plain([&BULK_MAX])),
        ("ResolveApprovalsRequest.matching", plain([&BULK_DENY_MAX])),
        ("ResolveApprovalRequest.ttl CreateGrantRequest.ttl RotateTokenRequest.overlap", vec![days(TTL_DAYS_MAX)]),
        ("VerifyAuditRequest.anchors", plain([&ANCHORS_MAX])),
        ("GrantService", plain([&GRANTS_MAX])),
        ("CreateGrantRequest.ceiling", plain([&CEILING_MAX])),
        ("PolicyService", vec![bytes(PROBLEM_BYTES_MAX)]),
        ("ApplyPolicyRequest.text CheckPolicyRequest.text BacktestPolicyRequest.text", vec![bytes(POLICY_BYTES_MAX)]),
        (
            "GetPolicyRequest.hash ActivatePolicyRequest.hash BacktestPolicyRequest.hash \
             BacktestPolicyRequest.baseline_hash StartPolicyRolloutRequest.hash EndPolicyRolloutRequest.hash",
            plain([&HASH_DIGITS_MIN]),
        ),
        ("StartPolicyRolloutRequest.share_basis_points", plain([&SHARE_MAX])),
        ("StartPolicyRolloutRequest.agent_ids", plain([&AGENTS_MAX])),
        ("CheckPolicyResponse.problems CheckPolicyResponse.tools_without_tier", plain([&PROBLEMS_MAX])),
        ("BacktestPolicyRequest.max_calls", plain([&BACKTEST_CALLS_MAX, &BACKTEST_CALLS_DEFAULT])),
        ("BacktestResult.changes", plain([&CHANGES_MAX])),
        ("GetRetryProfileRequest.attempt", plain([&ATTEMPT_MAX])),
        ("GetRetryHistoryRequest.days GetToolQualityRequest.days", plain([&DAYS_MAX, &DAYS_DEFAULT])),
        ("GetRetryHistoryResponse.self_corrections", plain([&CORRECTIONS_MAX])),
        ("GetRetryHistoryResponse.data_start_time", plain([&RETRIES_MAX])),
        ("GetToolQualityResponse.tools", plain([&TOLD_MAX])),
        ("GetToolQualityResponse.unknown_tools", plain([&UNKNOWN_TOOLS_MAX])),
        ("ToolQuality.coerced_fields", plain([&COERCED_MAX])),
        ("NearPair.pairs", plain([&PAIRS_MAX])),
        ("SessionService", plain([&RAISED_MAX])),
        ("SetPhaseRequest.plan", plain([&PLAN_MAX])),
        ("ExplainCallResponse.inputs_missing", plain([&BEFORE_MAX])),
        ("TenantRetention.texts_days TenantRetention.calls_days", plain([&TERM_DAYS_MAX])),
        ("TenantRetention.months_days", plain([&MONTHS_DAYS_MIN, &TERM_DAYS_MAX])),
        ("CreateTenantRequest.name", plain([&TENANT_NAME_BYTES_MAX])),
        ("Usage.model", vec![bytes(NAME_BYTES_MAX)]),
    ]
}

/// Numbers that are no limits of ours.
fn facts() -> Numbers {
    vec![
        ("GateService", plain([&431])),
        ("Approval.required_approvals", plain([&2])),
        ("PolicyRevision.hash Verdict.policy_version", plain([&16])),
        (
            "Permit.idempotency_key ExportCallsResponse.trace_id ExportCallsResponse.witness \
             ExportCallsResponse.witness_after",
            plain([&32]),
        ),
        ("ForgetResponse.percent ReencryptResponse.percent", plain([&100])),
        ("RetryChance.p_low RetryChance.p_high Advice.p_low Advice.p_high", vec!["90 %".to_owned()]),
        ("RetryCalibration.tenth", plain([&0.1])),
        ("ToolError.provider_code", plain([&40001])),
        ("CallSummary.arguments", plain([&120])),
        ("CallSummary.result_summary", plain([&160])),
    ]
}

/// The numbers of a text, without 0 and 1, which are ends and defaults of most ranges. A number has its unit, and bytes
/// are counted singly. Code is left out.
fn numbers(text: &str) -> BTreeSet<String> {
    let prose: String = text.split('`').step_by(2).collect();
    let words: Vec<&str> =
        prose.split_whitespace().map(|word| word.trim_matches(['.', ',', ';', ':', '(', ')'])).collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || b == b',' || b == b'.');
    let number = |(i, word): (usize, &&str)| {
        let digits = word.replace(',', "");
        let scaled = |factor: u64| format!("{} bytes", digits.parse::<u64>().unwrap_or_default() * factor);
        Some(match words.get(i + 1).copied() {
            Some("KiB") => scaled(1 << 10),
            Some("MiB") => scaled(1 << 20),
            Some("s") => format!("{digits} seconds"),
            Some(unit @ ("bytes" | "seconds" | "days" | "%")) => format!("{digits} {unit}"),
            _ if digits == "0" || digits == "1" => return None,
            _ => digits,
        })
    };
    words.iter().enumerate().filter(|(_, word)| is_number(word)).filter_map(number).collect()
}

/// The element at a place of a file's descriptor, as numbers of fields and indexes lead to it.
fn element(file: &FileDescriptorProto, path: &[i32]) -> String {
    let at = |i: &i32| usize::try_from(*i).unwrap_or_default();
    match path {
        [2] => file.name().trim_start_matches("callgate/v1/").to_owned(),
        [4, message] => file.message_type[at(message)].name().to_owned(),
        [4, message, 2, field] => {
            let message = &file.message_type[at(message)];
            format!("{}.{}", message.name(), message.field[at(field)].name())
        }
        [4, message, 8, oneof] => {
            let message = &file.message_type[at(message)];
            format!("{}.{}", message.name(), message.oneof_decl[at(oneof)].name())
        }
        [5, list] => file.enum_type[at(list)].name().to_owned(),
        [5, list, 2, value] => {
            let list = &file.enum_type[at(list)];
            format!("{}.{}", list.name(), list.value[at(value)].name())
        }
        [6, service] => file.service[at(service)].name().to_owned(),
        [6, service, 2, method] => {
            let service = &file.service[at(service)];
            format!("{}.{}", service.name(), service.method[at(method)].name())
        }
        other => format!("{} {other:?}", file.name()),
    }
}

/// The numbers in the comments of `proto/`, by element.
fn read_comments() -> BTreeMap<String, BTreeSet<String>> {
    let files = FileDescriptorSet::decode(callgate_proto::v1::DESCRIPTORS).expect("descriptors").file;
    let mut found = BTreeMap::new();
    for file in files.iter().filter(|file| file.package() == "callgate.v1") {
        for place in file.source_code_info.iter().flat_map(|info| &info.location) {
            let detached = place.leading_detached_comments.iter().map(String::as_str);
            let text: Vec<&str> = detached.chain([place.leading_comments(), place.trailing_comments()]).collect();
            let numbers = numbers(&text.join("\n"));
            if !numbers.is_empty() {
                found.insert(element(file, &place.path), numbers);
            }
        }
    }
    found
}

#[test]
fn comments_of_the_contract_have_exactly_the_listed_numbers() {
    assert_eq!(TTL_MS_DEFAULT, 3_600_000, "the comments of `ttl` give one hour");
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (elements, numbers) in [numbers_of_calls(), numbers_of_lists_and_commands(), facts()].concat() {
        for element in elements.split_whitespace() {
            let numbers = numbers.iter().filter(|number| *number != "1").cloned();
            listed.entry(element.to_owned()).or_default().extend(numbers);
        }
    }
    let commented = read_comments();
    let elements: BTreeSet<&String> = listed.keys().chain(commented.keys()).collect();
    let differing: Vec<_> = elements
        .into_iter()
        .map(|element| (element, commented.get(element), listed.get(element)))
        .filter(|(_, commented, listed)| commented != listed)
        .collect();
    assert!(differing.is_empty(), "(element, numbers in its comment, numbers listed for it): {differing:#?}");
}

#[test]
fn numbers_of_a_text_have_units_and_leave_code_out() {
    let text = "1 to 2,000 bytes (64 KiB), `n: 9` or 300, of SHA-256, UTF-8, 5xx and HTTP/2: 90 %; 0 is 60 seconds.";
    let expected = ["2000 bytes", "300", "60 seconds", "65536 bytes", "90 %"].map(str::to_owned);
    assert_eq!(numbers(text), BTreeSet::from(expected));
}
