//! Commands of people and systems in a story.

use std::fmt::Write as _;

use super::{
    stage::{Stage, Step},
    step_words::{duration, number},
};
use crate::{
    domain::{
        call::{Approval, ApprovalStatus, Call, Request},
        control::{ClearanceScope, ClearanceTerms, Command, EditedArguments, Operation},
        halt::{Halt, HaltTarget},
        ids::{AgentId, SessionId, ToolName},
        json,
        pattern::Pattern,
    },
    policy,
};

impl Stage {
    /// Replaces the policy by a file's text.
    pub(super) fn policy(&mut self, yaml: &str) -> Step {
        self.policy = policy::compile_with(yaml, &self.rules).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("the story's policy is wrong:\n{}\n{yaml}", errors.join("\n"))
        })?;
        Ok(())
    }

    /// A step of people; none for other steps.
    pub(super) fn people(&mut self, words: &[&str]) -> Option<Step> {
        Some(match words {
            ["approve", why @ ..] => self.answer(true, None, why),
            ["approve_with", arguments @ ..] => self.edit(&arguments.join(" ")),
            ["deny", why @ ..] => self.answer(false, None, why),
            ["withdraw"] => self.pending().and_then(|approval_id| {
                let (session, operation) = (self.session_id(), Operation::Withdraw { approval_id });
                self.done_by(session.as_str(), operation, None)
            }),
            ["clear", scope @ ("resource" | "tool"), time] => duration(time).and_then(|ttl_ms| {
                let scope = if *scope == "tool" { ClearanceScope::Tool } else { ClearanceScope::Resource };
                self.answer(true, Some(ClearanceTerms { scope, ttl_ms }), &[])
            }),
            ["compacted"] => self.command(Operation::MarkCompacted, None),
            ["phase", phase, rest @ ..] => {
                let plan = rest.strip_prefix(&["plan"]).map(|plan| plan.iter().map(|tool| parse_tool(tool)).collect());
                self.command(Operation::SetPhase { phase: (*phase).to_owned(), plan }, None)
            }
            ["grant", pattern, ceiling] => {
                let granted = number(ceiling).and_then(|ceiling| {
                    let tools = Pattern::parse("grant", pattern).map_err(|invalid| invalid.problem)?;
                    Ok(Operation::Grant { id: format!("g{}", self.log.len()), tools, ceiling, ttl_ms: 3_600_000 })
                });
                granted.and_then(|operation| self.command(operation, None))
            }
            ["halt", what @ ..] => parse_halt(what).map(|what| self.halt(what, true)),
            ["resume", what @ ..] => parse_halt(what).map(|what| self.halt(what, false)),
            _ => return None,
        })
    }

    fn halt(&mut self, what: HaltTarget, on: bool) {
        let halt = Halt { what: what.clone(), by: "operator".to_owned(), reason: "a drill".to_owned(), at: self.now };
        self.world.halt(what, on.then_some(halt));
    }

    fn answer(&mut self, approve: bool, clears: Option<ClearanceTerms>, why: &[&str]) -> Step {
        let approval_id = self.pending()?;
        self.command(
            Operation::Answer { approval_id, approve, clears, edited: None },
            Some(why.join(" ")).filter(|why| !why.is_empty()),
        )
    }

    /// Yes, with other arguments.
    fn edit(&mut self, arguments: &str) -> Step {
        let approval_id = self.pending()?;
        let session = self.session_id();
        let tree = self.world.tree(&session).ok_or("nobody asked for anything yet")?;
        let calls =
            tree.sessions.get(&session).map(|session| &session.calls).ok_or("this session asked for nothing yet")?;
        let asks = |call: &&Call| call.approval.as_ref().is_some_and(|asked| asked.id == approval_id);
        let asked = calls.iter().find(asks).ok_or("no call asks that")?;
        let arguments = json::parse(arguments).map_err(|error| error.to_string())?;
        let request = Request::new(tree.tenant, session.clone(), asked.call_id.clone(), asked.tool.clone(), arguments);
        let chosen = self.policy.propose(request);
        let edited = EditedArguments { digest: chosen.args_digest, arguments: Some(chosen.canonical.clone()) };
        self.edited = Some(edited.clone());
        self.command(Operation::Answer { approval_id, approve: true, clears: None, edited: Some(edited) }, None)
    }

    /// The newest pending approval request of the session.
    fn pending(&self) -> Result<String, String> {
        let tree = self.world.tree(&self.session_id()).ok_or("nobody asked for anything yet")?;
        let session = tree.sessions.get(&self.session_id()).ok_or("this session asked for nothing yet")?;
        let approvals = session.calls.iter().rev().filter_map(|call| call.approval.as_deref());
        let pending = |approval: &&Approval| approval.answer == ApprovalStatus::Pending;
        Ok(approvals.into_iter().find(pending).ok_or("no question is open")?.id.clone())
    }

    fn command(&mut self, operation: Operation, reason: Option<String>) -> Step {
        self.done_by("operator", operation, reason)
    }

    fn done_by(&mut self, by: &str, operation: Operation, reason: Option<String>) -> Step {
        let command = Command { session: self.session_id(), by: by.into(), reason, operation };
        let _ = writeln!(self.log, "  {:?}", command.operation);
        self.world.control(&self.policy, &command, self.now).map_err(|caller_error| format!("{caller_error:?}"))
    }

    fn session_id(&self) -> SessionId {
        SessionId::parse("session", &self.session).expect("a name")
    }
}

fn parse_tool(tool: &str) -> ToolName {
    ToolName::parse("tool", tool).expect("a name")
}

fn parse_halt(words: &[&str]) -> Result<HaltTarget, String> {
    Ok(match words {
        ["session", id] => HaltTarget::Session(SessionId::parse("session", id).expect("a name")),
        ["agent", id] => HaltTarget::Agent(AgentId::parse("agent", id).expect("a name")),
        ["tool", name] => HaltTarget::Tool(parse_tool(name)),
        ["tenant"] => HaltTarget::Tenant,
        _ => return Err("what is to be halted?".to_owned()),
    })
}
