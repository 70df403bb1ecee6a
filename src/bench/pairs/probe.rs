//! Resource probe of a server: CPU time by kind of process, and write-ahead log, between two samples.

use anyhow::Context as _;
use sqlx::{ConnectOptions as _, PgConnection, Row as _, postgres::PgConnectOptions};

use super::{
    child::Process,
    collector::{CollectorProbe, ReceivedCounts},
    cpu::{self, Micros},
};

/// Application name of its own connections, which are excluded.
const NAME: &str = "callgate bench";
const LSN: &str = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
const PROCESSES: &str = "select pid, coalesce(backend_type, ''), coalesce(application_name, '') from pg_stat_activity";

/// Probe of one server and its database.
#[derive(Debug)]
pub(super) struct Probe {
    server: Option<u32>,
    database: Option<Database>,
    /// Process of the server's collector.
    collector: Option<(u32, CollectorProbe)>,
}

#[derive(Debug)]
struct Database {
    conn: PgConnection,
    /// False for processes on another machine.
    is_local: bool,
}

/// A sample of cumulative values.
#[derive(Debug, Default)]
pub(super) struct ProbeSums {
    /// None where processes are not visible.
    pub(super) cpu: Option<Micros>,
    pub(super) wal: Option<u64>,
    pub(super) told: Option<ReceivedCounts>,
}

/// Difference of two samples: CPU time by kind, bytes of write-ahead log, and collector counts.
#[derive(Debug)]
pub(super) struct ResourceUse {
    pub(super) cpu: Option<Micros>,
    pub(super) wal: Option<u64>,
    pub(super) told: Option<ReceivedCounts>,
}

impl Probe {
    pub(super) async fn new(server: Option<u32>, database: Option<&PgConnectOptions>) -> anyhow::Result<Self> {
        let database = match database {
            Some(options) => Some(Database::connect(options).await?),
            None => None,
        };
        Ok(Self { server, database, collector: None })
    }

    /// Adds the server's collector to the probe.
    pub(super) async fn look_at(&mut self, collector: &Process) -> anyhow::Result<()> {
        self.collector = Some((collector.pid, CollectorProbe::connect(&collector.url).await?));
        Ok(())
    }

    pub(super) async fn read_sums(&mut self) -> anyhow::Result<ProbeSums> {
        let mut look = ProbeSums::default();
        if let Some(database) = &mut self.database {
            let wal: i64 = sqlx::query_scalar(LSN).fetch_one(&mut database.conn).await.context("the WAL's position")?;
            look.wal = u64::try_from(wal).ok();
        }
        if let Some((_, collector)) = &mut self.collector {
            look.told = Some(collector.counts().await?);
        }
        if !cpu::is_known() {
            return Ok(look);
        }
        let mut cpu = Micros::from([("client", cpu::read_cpu_usage(std::process::id()).map_or(0, |used| used.own))]);
        if let Some(used) = self.server.and_then(cpu::read_cpu_usage) {
            cpu.insert("server", used.own);
        }
        if let Some(used) = self.collector.as_ref().and_then(|(pid, _)| cpu::read_cpu_usage(*pid)) {
            cpu.insert("collector", used.own);
        }
        if let Some(database) = self.database.as_mut().filter(|database| database.is_local) {
            database.add(&mut cpu).await?;
        }
        look.cpu = Some(cpu);
        Ok(look)
    }
}

impl Database {
    async fn connect(options: &PgConnectOptions) -> anyhow::Result<Self> {
        let mut conn = options.clone().application_name(NAME).connect().await.context("the database")?;
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut conn).await?;
        let is_local = u32::try_from(pid).is_ok_and(cpu::is_postgres);
        Ok(Self { conn, is_local })
    }

    /// Adds PostgreSQL's processes. Ended ones (mostly autovacuum workers) are included by the postmaster's children
    /// time.
    async fn add(&mut self, cpu: &mut Micros) -> anyhow::Result<()> {
        let processes = sqlx::query(PROCESSES).fetch_all(&mut self.conn).await.context("PostgreSQL's processes")?;
        let mut postmaster = None;
        for row in processes {
            let (pid, backend, name): (i32, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let Some(used) = u32::try_from(pid).ok().and_then(cpu::read_cpu_usage) else { continue };
            postmaster = Some(used.parent);
            if name != NAME {
                *cpu.entry(query_kind(&backend, &name)).or_default() += used.own;
            }
        }
        if let Some(used) = postmaster.and_then(cpu::read_cpu_usage) {
            cpu.insert("postmaster", used.own);
            cpu.insert("ended", used.ended);
        }
        Ok(())
    }
}

fn query_kind(backend: &str, name: &str) -> &'static str {
    match (backend, name) {
        ("client backend", name) if name.starts_with("callgate writer") => "writer",
        ("client backend", name) if name.starts_with("callgate ") => "readers",
        ("client backend", _) => "backends",
        ("walwriter", _) => "walwriter",
        ("checkpointer", _) => "checkpointer",
        ("background writer", _) => "background writer",
        ("autovacuum launcher" | "autovacuum worker", _) => "autovacuum",
        _ => "other",
    }
}

impl ProbeSums {
    pub(super) fn since(&self, before: &Self) -> ResourceUse {
        let cpu = self.cpu.as_ref().zip(before.cpu.as_ref()).map(|(now, before)| {
            let used = |(kind, sum): (&&'static str, &u64)| {
                (*kind, sum.saturating_sub(before.get(kind).copied().unwrap_or_default()))
            };
            now.iter().map(used).collect()
        });
        ResourceUse {
            cpu,
            wal: self.wal.zip(before.wal).map(|(now, before)| now.saturating_sub(before)),
            told: self.told.zip(before.told).map(|(now, before)| now.since(before)),
        }
    }
}
