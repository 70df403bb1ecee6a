//! Fault harness: three replicas on one database, each behind a faulty connection; clients that retry with the same
//! call_id; a tool that records its executions; and a history of acknowledgments. After each fault nothing acknowledged
//! is lost, nothing was done twice, and every error was a documented one. Under load each runs twice: without
//! authentication, and for two tenants with a token each and identical calls, so that any leak between them is
//! detected.

mod cold;
mod commits;
mod crashes;
mod holes;
mod proxy;
mod revocation;
mod storms;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use callgate_core::{
    domain::{
        audit::Actor,
        call::Request,
        identity::{MappedIdentity, Role},
        ids::{DEFAULT_TENANT, TenantId},
        report::OutcomeReport,
    },
    policy::Policy,
};
use callgate_server::gate::{
    Apply, ApplyOutcome, Author, CredentialRejection, EvaluateAnswer, Gate, GateError, NoAnswer, PresentedCredential,
    RecordAnswer, WorkError,
};
use sqlx::Row as _;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use self::proxy::Proxy;
use crate::{
    common::{
        STEP, citus,
        gates::{gate_on, key, open, policy_text, success, try_evaluate},
        in_time,
        invariants::{gapless_of, good, one_open_permit, sums_of},
        postgres::Postgres,
    },
    tenants::create,
};

/// No caller waits longer for an answer or an error: the store's own limits add up to 8.3 s (two batches of the writer,
/// a connection, a read); the rest is for a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Interval at which a server reads the valid credentials.
const READ_EVERY: Duration = Duration::from_millis(800);

struct Replicas {
    gates: [Arc<Gate>; 3],
    proxies: [Proxy; 3],
    /// Tenants of the calls: the deployment's own, and a second one where shared.
    tenants: Vec<TenantId>,
    /// Token of each tenant's clients; none without authentication.
    tokens: BTreeMap<TenantId, String>,
    /// Reads which tokens hold, again and again.
    reading: JoinSet<()>,
    // Last, so that it outlives the others.
    postgres: Postgres,
}

impl Replicas {
    async fn start(policy: &Policy) -> Self {
        let postgres = Postgres::start().await;
        let proxies = [(); 3].map(|()| Proxy::to(&postgres));
        let [a, b, c] = &proxies;
        let gate = async |proxy: &Proxy| gate_on(open(proxy.options.clone()).await.expect("a store"), policy);
        let gates = [gate(a).await, gate(b).await, gate(c).await];
        Self {
            gates,
            proxies,
            tenants: vec![DEFAULT_TENANT],
            tokens: BTreeMap::new(),
            reading: JoinSet::new(),
            postgres,
        }
    }

    /// As [`Replicas::start`] with a policy of these rules, for two tenants that show a token each. Both have the same
    /// policy; `budgets` is that part of it as a text.
    async fn start_for_tenants(policy: &Policy, rules: &[&str], budgets: &str) -> Self {
        let mut replicas = Self::start(policy).await;
        let (gate, root) = (&replicas.gates[0], Actor::from("root"));
        let acme = create(gate, "acme").await.id;
        let (author, text) = (Author { by: &root, note: "", expected: None }, policy_text(rules, budgets));
        let applied =
            Box::pin(gate.policies.apply_policy(acme, &text, &author, Apply::Activate)).await.expect("stored");
        assert!(matches!(applied, ApplyOutcome::Stored { .. }), "{applied:?}");
        for tenant in [DEFAULT_TENANT, acme] {
            let fleet = MappedIdentity { name: "fleet".into(), roles: vec![Role::Agent], ..MappedIdentity::default() };
            let (token, _) = gate.identities.create_token(tenant, fleet, None, &root).await.expect("a token");
            replicas.tokens.insert(tenant, token);
        }
        for gate in &replicas.gates {
            assert_eq!(gate.identities.read_tenants().await, Ok(Vec::new()));
            gate.identities.read_credentials().await.expect("readable");
            assert!(gate.identities.wants_credentials());
        }
        let gates = replicas.gates.clone();
        replicas.reading.spawn(async move {
            loop {
                sleep(READ_EVERY).await;
                for gate in &gates {
                    let gate = Arc::clone(gate);
                    // As a server does; one that waits in vain keeps no other from it.
                    tokio::spawn(async move { drop(gate.identities.read_credentials().await) });
                }
            }
        });
        replicas.tenants.push(acme);
        replicas
    }

    fn is_shared(&self) -> bool {
        self.tenants.len() > 1
    }

    /// A history that nothing is in yet.
    fn history(&self) -> Arc<History> {
        Arc::new(History { told: Mutex::default(), tokens: self.tokens.clone() })
    }

    /// The same request, of each tenant.
    fn of_each(&self, request: &Request) -> Vec<Request> {
        self.tenants.iter().map(|tenant| Request { tenant: *tenant, ..request.clone() }).collect()
    }

    /// Complains unless changes of two tenants were written together.
    async fn batches_were_shared(&self) {
        let shared =
            "select count(*) from (select 1 from call group by xmin::text having count(distinct tenant_id) > 1) b";
        assert!(
            !self.is_shared() || citus::is_wanted() || self.postgres.number(shared).await > 0,
            "no batch was shared"
        );
    }
}

/// Responses to clients, and their executions.
#[derive(Default)]
struct History {
    told: Mutex<ClientRecord>,
    tokens: BTreeMap<TenantId, String>,
}

/// A session's call, as the books name it.
type Name = (TenantId, String, String);

#[derive(Default, Clone)]
struct ClientRecord {
    /// The key of the permit of a session's call.
    permits: BTreeMap<Name, String>,
    /// The result that was acknowledged for it.
    results: BTreeMap<Name, String>,
    /// Executions of the tool.
    executed: Vec<String>,
    errors: usize,
}

impl History {
    fn observe(&self) -> ClientRecord {
        self.told.lock().expect("no panic").clone()
    }

    fn note(&self, note: impl FnOnce(&mut ClientRecord)) {
        note(&mut self.told.lock().expect("no panic"));
    }

    /// Checks an error: it must be a documented, transient one.
    fn passing<T, R: Debug>(&self, outcome: Result<T, GateError<R>>, since: Instant) -> Option<T> {
        assert!(since.elapsed() < ANSWER_MAX, "that took {:?}", since.elapsed());
        match outcome {
            Ok(answer) => Some(answer),
            Err(GateError::NoAnswer(
                NoAnswer::OutOfReach(_) | NoAnswer::Overloaded(_) | NoAnswer::Crowded(_) | NoAnswer::Contention,
            )) => {
                self.note(|told| told.errors += 1);
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Authentication of a server: true if the credential of this tenant's clients is valid, and may access the
    /// session. False while it cannot be verified.
    async fn is_let_in(&self, gate: &Gate, tenant: TenantId, request: Option<&Request>) -> bool {
        let Some(token) = self.tokens.get(&tenant) else { return true };
        let known = match gate.identities.identity(PresentedCredential::Bearer(token), None) {
            Some(known) => known,
            None => gate.identities.looked_up(token, None).await,
        };
        let identity = match known {
            Ok(identity) => identity,
            Err(CredentialRejection::Unchecked) => return false,
            Err(refused) => panic!("the token of {tenant:?} holds, and is refused: {refused:?}"),
        };
        assert_eq!(identity.tenant, tenant, "a token is its own tenant's");
        let Some(request) = request else { return true };
        let since = Instant::now();
        let works = Box::pin(gate.decisions.works_in(&identity, &request.session, request.parent.as_ref(), true)).await;
        let works = works.map_err(|error| match error {
            WorkError::NoAnswer(error) => GateError::<()>::NoAnswer(error),
            WorkError::NotTheirs => panic!("the session of {tenant:?} is somebody else's: {request:?}"),
        });
        self.passing(works, since).is_some()
    }
}

fn name(request: &Request) -> Name {
    (request.tenant, request.session.to_string(), request.call_id.to_string())
}

/// Evaluates on one replica after the other until an answer, and records a permit.
async fn ask_until_told(gates: &[Arc<Gate>; 3], first: usize, request: &Request, history: &History) -> EvaluateAnswer {
    let asked = async {
        for n in first.. {
            let gate = &gates[n % 3];
            if history.is_let_in(gate, request.tenant, Some(request)).await {
                let since = Instant::now();
                if let Some(answer) = history.passing(try_evaluate(gate, request.clone()).await, since) {
                    return answer;
                }
            }
            sleep(STEP * 5).await;
        }
        unreachable!("one never tires");
    };
    let answer = Box::pin(in_time("an answer", asked)).await;
    if let Some(key) = key(&answer) {
        let before = (history.told.lock().expect("no panic").permits).insert(name(request), key.clone());
        assert!(before.is_none_or(|before| before == key), "another permit for {:?}", name(request));
    }
    answer
}

/// Reports to one replica after the other until that is heard.
async fn report_until_heard(
    gates: &[Arc<Gate>; 3],
    first: usize,
    (tenant, report): (TenantId, &OutcomeReport),
    history: &History,
) -> RecordAnswer {
    let reported = async {
        for n in first.. {
            let gate = &gates[n % 3];
            if history.is_let_in(gate, tenant, None).await {
                let since = Instant::now();
                if let Some(answer) = history.passing(gate.decisions.record(tenant, report.clone(), None).await, since)
                {
                    return answer;
                }
            }
            sleep(STEP * 5).await;
        }
        unreachable!("one never tires");
    };
    let answer = Box::pin(in_time("an answer", reported)).await;
    let call = (tenant, report.session.to_string(), report.call_id.to_string());
    history.note(|told| {
        told.results.insert(call, report.result.clone().unwrap_or_default());
    });
    answer
}

/// A client with one call: evaluates, executes if permitted, and reports. Its effect is the tool with its arguments.
async fn client(gates: [Arc<Gate>; 3], first: usize, request: Request, history: Arc<History>) -> EvaluateAnswer {
    let answer = ask_until_told(&gates, first, &request, &history).await;
    if answer.verdict.permit.is_some() {
        let (tenant, session, call) = name(&request);
        history.note(|told| told.executed.push(format!("{tenant:?} {} {:?}", request.tool, request.arguments)));
        let report = success(&session, &call, &format!("result of {call} of {tenant:?}"));
        report_until_heard(&gates, first + 1, (tenant, &report), &history).await;
    }
    answer
}

/// Compares all acknowledgments and executions with the stored rows.
async fn check(postgres: &Postgres, history: &History) {
    let told = history.observe();
    let sql = "select tenant_id, session_id, call_id, idempotency_key, outcome, result from tool_call";
    let rows = sqlx::query(sql).fetch_all(&mut postgres.connect().await).await.expect("rows");
    let mut stored: BTreeMap<Name, Vec<_>> = BTreeMap::new();
    for row in &rows {
        stored.entry((TenantId(row.get(0)), row.get(1), row.get(2))).or_default().push(row);
    }
    let keys: BTreeSet<_> = told.permits.values().collect();
    assert_eq!(keys.len(), told.permits.len(), "two permits have one key");
    for (call, key) in &told.permits {
        let [row] = stored.get(call).map(Vec::as_slice).unwrap_or_default() else {
            panic!("{call:?} was permitted, and has not one row")
        };
        assert_eq!(row.get::<Option<&str>, _>(3), Some(key.as_str()), "{call:?} has another permit");
    }
    for (call, result) in &told.results {
        let [row] = stored.get(call).map(Vec::as_slice).unwrap_or_default() else {
            panic!("{call:?} was reported, and has not one row")
        };
        let settled = (row.get::<Option<&str>, _>(4), row.get::<Option<&str>, _>(5));
        assert_eq!(settled, (Some("success"), Some(result.as_str())), "{call:?} has another outcome");
    }
    let done: BTreeSet<_> = told.executed.iter().collect();
    assert_eq!(done.len(), told.executed.len(), "done twice: {:?}", told.executed);
    let twice = [
        "select session_id, call_id from call group by tenant_id, session_id, call_id, round having count(*) > 1",
        "select session_id, call_id from outcome where status = 1 group by tenant_id, session_id, call_id
           having count(*) > 1",
    ];
    for sql in twice {
        assert_eq!(postgres.rows(sql).await, [""; 0], "{sql}");
    }
    good([one_open_permit(postgres).await]);
    for tree in postgres.rows("select tenant_id, root_id from call_tree").await {
        let (tenant, root) = tree.trim_matches(['(', ')']).split_once(',').expect("two columns");
        let tenant = TenantId(tenant.parse().expect("a number"));
        good([gapless_of(postgres, tenant, root).await, sums_of(postgres, tenant, root).await]);
    }
}
