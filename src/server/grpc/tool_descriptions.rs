//! Decoding and encoding of descriptions of tools.

use std::collections::BTreeSet;

use super::{
    decode::{DecodeResult, decode_foreign_text, required_text, wrong},
    page,
    time::timestamp,
};
use crate::{
    gate::{DESCRIPTIONS_MAX, DescriptionKey},
    grpc::ToWire,
};
use callgate_core::domain::{
    ids::ToolName,
    tool_descriptions::{
        DESCRIPTION_BYTES_MAX, DIGEST_DIGITS, DescriptionTexts, DescriptionVersion, REPORTED_MAX, ReportedTool,
        SCHEMA_BYTES_MAX,
    },
};
use callgate_proto::v1;

/// Descriptions on a page: each has two texts, twice.
pub(super) const PAGE_MAX: u32 = 20;

pub(super) fn decode_report(message: &v1::ReportToolsRequest) -> DecodeResult<(String, Vec<ReportedTool>)> {
    let (server, count) = (required_text("server", &message.server)?, message.tools.len());
    if !(1..=REPORTED_MAX).contains(&count) {
        return wrong("tools", format!("has {count} tools; 1 to {REPORTED_MAX} are allowed"));
    }
    let mut names = BTreeSet::new();
    let tool = |(i, tool): (usize, &v1::ReportedTool)| -> DecodeResult<ReportedTool> {
        let field = |name: &str| format!("tools[{i}].{name}");
        let name = ToolName::parse(&field("tool"), &tool.tool)?;
        if !names.insert(name.clone()) {
            return wrong(&field("tool"), "appears twice in the report");
        }
        let text = |name: &str, text: &str, max| decode_foreign_text(&field(name), text, max);
        let texts = DescriptionTexts {
            digest: decode_digest(&field("digest"), &tool.digest)?,
            description: text("description", &tool.description, DESCRIPTION_BYTES_MAX)?.unwrap_or_default(),
            schema: text("schema_json", &tool.schema_json, SCHEMA_BYTES_MAX)?.unwrap_or_default(),
        };
        Ok(ReportedTool { tool: name, texts })
    };
    Ok((server, message.tools.iter().enumerate().map(tool).collect::<DecodeResult<_>>()?))
}

pub(super) fn decode_digest(field: &str, digest: &str) -> DecodeResult<String> {
    if digest.len() != DIGEST_DIGITS || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong(field, format!("must be {DIGEST_DIGITS} hexadecimal digits"));
    }
    Ok(digest.to_ascii_lowercase())
}

/// The answer to a tenant with too many descriptions.
pub(super) fn full<T>() -> DecodeResult<T> {
    wrong("tools", format!("would be more than {DESCRIPTIONS_MAX} stored descriptions of this tenant"))
}

pub(super) fn encode(version: DescriptionVersion) -> v1::ToolDescriptionVersion {
    let DescriptionTexts { digest, description, schema } = version.texts;
    v1::ToolDescriptionVersion {
        server: version.server,
        tool: version.tool,
        digest,
        description,
        schema_json: schema,
        state: version.state.to_wire().into(),
        first_report_time: Some(timestamp(version.first_reported_at)),
        first_reported_by: version.first_reported_by,
        last_report_time: Some(timestamp(version.last_reported_at)),
        resolve_time: version.resolved_at.map(timestamp),
        resolved_by: version.resolved_by,
        accepted: version.accepted.map(|texts| v1::AcceptedToolDescription {
            digest: texts.digest,
            description: texts.description,
            schema_json: texts.schema,
        }),
    }
}

pub(super) fn decode_page(token: &str) -> DecodeResult<Option<DescriptionKey>> {
    page::after(token, |[server, tool, first, digest]| {
        Some((server.to_owned(), tool.to_owned(), page::millis(first)?, digest.to_owned()))
    })
}

pub(super) fn page_token(last: &DescriptionVersion) -> String {
    let first = last.first_reported_at.as_millis().to_string();
    page::token([&last.server, &last.tool, &first, &last.texts.digest])
}
