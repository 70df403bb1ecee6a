//! phase: not in this part of the work.
//!
//! Fires when the session's phase does not allow the tool, when its caller moves to a phase that may not follow, or
//! when a write is not the next one of the plan that was set with the phase.
//!
//! Why: an agent that first gathers, then plans without tools, and then acts in the order of its plan makes no
//! unplanned write. A write out of order usually means that the plan was lost.
//!
//! Known problems: the caller or an operator sets the phase; callgate cannot see the model change its mind.

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Wording},
    pattern::Pattern,
    reason::Reason,
};

use super::{RecordedCall, Rule, RuleContext, RuleLogic};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("phase").section("phases");

/// Phase of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPhase {
    /// Its name.
    pub name: String,
    /// Permitted tools; none permits no tool.
    pub tools: Option<Pattern>,
    /// Phases that may follow.
    pub next: Vec<String>,
}

/// Phases of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// The phases; the first is initial. Empty: no phases.
    pub phases: Vec<SessionPhase>,
    /// The phase after a final failure of a write.
    pub after_failed_write: Option<String>,
}

impl Params {
    /// The phase of that name.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&SessionPhase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// The names of the phases that permit a tool.
    fn allowing<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a str> {
        let allows = move |phase: &&SessionPhase| phase.tools.as_ref().is_some_and(|tools| tools.matches(tool));
        self.phases.iter().filter(allows).map(|phase| phase.name.as_str())
    }

    /// The objection to a phase change; none when it is valid.
    #[must_use]
    pub fn forbids(&self, from: Option<&str>, to: &str) -> Option<String> {
        if self.phases.is_empty() {
            return Some(format!("There is no phase {to}: the policy has no phases."));
        }
        let names = || self.phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>().join(", ");
        if self.phase(to).is_none() {
            return Some(format!("There is no phase {to}; the phases are {}.", names()));
        }
        let from = from.and_then(|from| self.phase(from)).or(self.phases.first())?;
        if from.name == to || from.next.iter().any(|next| next == to) {
            return None;
        }
        let next = if from.next.is_empty() { "nowhere".to_owned() } else { from.next.join(" or ") };
        Some(format!("Phase {} does not lead to {to}, but to {next}.", from.name))
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(self, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let names: Vec<&str> = self.allowing(asked.tool).collect();
        match (self.phases.is_empty(), names.as_slice()) {
            (true, _) => "no phases in the policy".to_owned(),
            (false, []) => "in no phase".to_owned(),
            (false, names) => format!("{} is for {}", asked.tool, names.join(" and ")),
        }
    }
}

fn check(params: &Params, cx: &RuleContext<'_>) -> Option<Finding> {
    let first = params.phases.first()?;
    let known = cx.session().and_then(|session| session.phase.as_deref());
    let asked = cx.proposal.request.phase.as_deref();
    let deny = |reason, message: Wording| Some(Finding::new(RULE.id, Decision::Deny, reason, message));
    if let Some(objection) = asked.and_then(|asked| params.forbids(known, asked)) {
        return deny(Reason::PhaseForbids, format!("{} was not run: {objection}", cx.tool()).into());
    }
    let phase = asked.or(known).and_then(|name| params.phase(name)).unwrap_or(first);
    if !phase.tools.as_ref().is_some_and(|tools| tools.matches(cx.tool())) {
        return deny(Reason::PhaseForbids, not_here(params, phase, cx.tool()));
    }
    out_of_order(cx).and_then(|message| deny(Reason::PlanOrder, message))
}

fn not_here(params: &Params, phase: &SessionPhase, tool: &str) -> Wording {
    let where_it_is: Vec<&str> = params.allowing(tool).collect();
    let name = &phase.name;
    match (where_it_is.as_slice(), &phase.tools) {
        ([], _) => Wording::new(format!("{tool} is not allowed in any phase."), "Do without it, or tell the user."),
        (others, None) => {
            let situation = format!("Phase {name} allows no tools. {tool} is for {}.", others.join(" and "));
            Wording::new(situation, "Think it through first.")
        }
        (others, Some(tools)) => Wording::new(
            format!(
                "{tool} is not allowed in phase {name}, which allows {}. It is for {}.",
                tools.as_str(),
                others.join(" and ")
            ),
            "Finish this phase first.",
        ),
    }
}

/// The objection to a write that is not the plan's next.
fn out_of_order(cx: &RuleContext<'_>) -> Option<Wording> {
    let plan = cx.session()?.plan.as_ref()?;
    let tool = cx.tool();
    let planned = plan.order.iter().any(|step| step.as_str() == tool);
    if !planned && cx.proposal.effect.kind != EffectKind::Write {
        return None;
    }
    match plan.order.get(plan.done) {
        Some(next) if next.as_str() == tool => None,
        Some(next) => Some(Wording::new(
            format!("{tool} is out of order: step {} of the plan is {next}.", plan.done + 1),
            "Do that first, or make a new plan.",
        )),
        None => Some(Wording::new(
            format!("The plan is done, and {tool} is not part of what is left."),
            "Make a new plan first.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    const PHASES: &str = "policy
        phases:
          - {name: GATHER, tools: 'get_*|list_*', next: [PLAN]}
          - {name: PLAN, next: [ACT]}
          - {name: ACT, tools: '*', next: [GATHER]}
        tool_schemas:
          create_order: {effect: write}
          pay: {effect: write}
          get_order: {effect: read}
      end
      rules phase
      ";

    #[test]
    fn a_tool_is_for_its_phase_and_phases_follow_one_another() {
        check(&format!(
            "{PHASES}
             get_order {{}} => allow
             pay {{}} => deny phase_forbids
             pay {{}} in ACT => deny phase_forbids
             get_order {{\"n\":1}} in PLAN => deny phase_forbids
             phase PLAN
             phase ACT
             pay {{\"n\":2}} => allow"
        ));
    }

    #[test]
    fn writes_follow_the_plan_and_reads_go_between() {
        check(&format!(
            "{PHASES}
             phase PLAN
             phase ACT plan create_order pay
             pay {{}} => deny plan_order
             get_order {{}} -> ok a => allow
             create_order {{}} -> error timeout => allow
             pay {{\"n\":1}} => deny plan_order
             create_order {{\"n\":2}} -> ok done => allow
             pay {{\"n\":2}} -> ok done => allow
             pay {{\"n\":3}} => deny plan_order"
        ));
    }
}
