//! Servers of a run: started on first use, each with its own database, stopped at the end.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;

use super::{
    certificate::CertificateFiles,
    child::Process,
    disk::Disk,
    keys,
    link::{ServerTarget, Transport},
    probe::Probe,
    stored,
    telemetry::TelemetryLevel,
    tokens,
    yardstick::{DATABASE, PairAnswers, Yardstick},
};
use callgate_client::credential::Credential;
use callgate_postgres::{PostgresSettings, PrivatePostgres};
use callgate_store::parse_url;

/// Kind of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ServerKind {
    /// A running one, with its credential, and its database if known.
    Running { url: String, shown: Credential, database_url: Option<String> },
    /// A started one of this program or another build. Each of its tenants has a token.
    Own {
        program: PathBuf,
        policy: PolicyPreset,
        stored: u64,
        database_url: Option<String>,
        /// Its listener is the one of this transport.
        transport: Transport,
        tenants: usize,
        encrypted: bool,
        /// Telemetry to its own collector, if any.
        telling: Option<TelemetryLevel>,
    },
    /// A yardstick with responses to calls of these sizes.
    Yardstick(Yardstick, (usize, usize)),
}

/// Policy of a started server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PolicyPreset {
    /// The built-in one.
    Default,
    /// The default one with one declared write, and a declared read, so that it is answered with previous results.
    Declared { read: bool },
    /// The default one without limits that a session of thousands of calls reaches.
    Long,
    /// A file.
    File(PathBuf),
}

impl ServerKind {
    /// Number of tenants with a token each.
    pub(super) const fn tenants(&self) -> usize {
        match self {
            Self::Own { tenants, .. } => *tenants,
            Self::Running { .. } | Self::Yardstick(..) => 0,
        }
    }

    /// This server without encryption.
    pub(super) const fn in_the_clear(mut self) -> Self {
        if let Self::Own { encrypted, .. } = &mut self {
            *encrypted = false;
        }
        self
    }

    /// This server for another transport.
    pub(super) const fn over(mut self, other: Transport) -> Self {
        if let Self::Own { transport, .. } = &mut self {
            *transport = other;
        }
        self
    }

    /// This server with a collector.
    pub(super) const fn telling(mut self, what: TelemetryLevel) -> Self {
        if let Self::Own { telling, .. } = &mut self {
            *telling = Some(what);
        }
        self
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Running { url, .. } => url.clone(),
            Self::Own { program, policy, stored, encrypted, telling, .. } => match (policy, stored, telling) {
                (_, 0, Some(telling)) => format!("{} with a collector, {}", program.display(), telling.name()),
                (_, 0, None) if *encrypted => format!("{} with keys", program.display()),
                (PolicyPreset::Default, 0, None) => program.display().to_string(),
                (_, 0, None) => format!("{} with another policy", program.display()),
                (_, stored, _) => format!("{} with {stored} calls stored", program.display()),
            },
            Self::Yardstick(kind, _) => kind.name().to_owned(),
        }
    }
}

/// Name of the policy file in a server's folder.
const POLICY: &str = "policy.yaml";

/// A running server.
#[derive(Debug)]
pub(super) struct BenchServer {
    pub(super) which: ServerKind,
    pub(super) way: ServerTarget,
    pub(super) probe: Probe,
    process: Option<Process>,
    collector: Option<Process>,
    database: Option<PrivatePostgres>,
}

/// All servers of a run, in a temporary folder.
#[derive(Debug)]
pub(super) struct Servers {
    folder: TempDir,
    pg_bin: Option<PathBuf>,
    disk: Disk,
    running: Vec<BenchServer>,
    /// Number of started servers.
    started: usize,
}

impl Servers {
    pub(super) fn new(pg_bin: Option<PathBuf>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("callgate-bench-").tempdir().context("no temporary directory")?;
        callgate_postgres::open_folder(folder.path())?;
        let disk = Disk::of(folder.path())?;
        Ok(Self { folder, pg_bin, disk, running: Vec::new(), started: 0 })
    }

    /// Index of the server, started if necessary.
    pub(super) async fn of(&mut self, which: &ServerKind, answers: Option<&PairAnswers>) -> anyhow::Result<usize> {
        if let Some(n) = self.running.iter().position(|server| server.which == *which) {
            return Ok(n);
        }
        let server = self.start(which.clone(), answers).await?;
        self.running.push(server);
        Ok(self.running.len() - 1)
    }

    pub(super) fn get(&mut self, n: usize) -> &mut BenchServer {
        &mut self.running[n]
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn servers(&self) -> &[BenchServer] {
        &self.running
    }

    async fn start(&mut self, which: ServerKind, answers: Option<&PairAnswers>) -> anyhow::Result<BenchServer> {
        self.started += 1;
        let folder = self.folder.path().join(format!("server-{}", self.started));
        std::fs::create_dir(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        callgate_postgres::open_folder(&folder)?;
        let given = match &which {
            ServerKind::Running { url, shown, database_url } => {
                let options = database_url.as_deref().map(parse_url).transpose().context("--database-url")?;
                let probe = Probe::new(None, options.as_ref()).await?;
                let way = ServerTarget { url: url.clone(), tokens: vec![shown.bearer()?], shown: shown.clone() };
                return Ok(BenchServer { way, probe, process: None, collector: None, database: None, which });
            }
            ServerKind::Own { database_url, .. } => database_url.clone(),
            ServerKind::Yardstick(..) => None,
        };
        let database = match (&given, &which) {
            (Some(_), _) | (_, ServerKind::Yardstick(Yardstick::Echo, _)) => None,
            _ => {
                let settings = PostgresSettings { data_dir: folder.join("data"), pg_bin: self.pg_bin.clone() };
                Some(PrivatePostgres::start(&settings).await?)
            }
        };
        let url = given.or_else(|| database.as_ref().map(|database| database.connection().url()));
        let mut variables: Vec<(&str, String)> = url.iter().map(|url| (DATABASE, url.clone())).collect();
        let collector = match &which {
            ServerKind::Own { telling: Some(telling), .. } => {
                let collector = collecting(&folder).await?;
                variables.extend(telling.variables(collector.url.clone()));
                Some(collector)
            }
            _ => None,
        };
        let process = match serving(&which, &folder, &variables, answers).await {
            Ok(process) => process,
            Err(error) => {
                if let Some(database) = database {
                    database.stop().await?;
                }
                return Err(error);
            }
        };
        let options = url.as_deref().map(parse_url).transpose().context("the database")?;
        let options: Option<PgConnectOptions> = options.map(|options| options.options([("search_path", "callgate")]));
        if let (ServerKind::Own { stored, .. }, Some(options)) = (&which, &options)
            && *stored > 0
        {
            stored::fill(&process.url, options, *stored).await.context("calls to begin with")?;
        }
        let mut way = ServerTarget::to(&process.url);
        if matches!(&which, ServerKind::Own { transport, .. } if transport.has_tls()) {
            way.url = process.url.replacen("http:", "https:", 1);
            way.shown.ca = Some(CertificateFiles::of(&folder).certificate);
        }
        if let (ServerKind::Own { program, policy, tenants: 1.., .. }, Some(url)) = (&which, &url) {
            let policy = policy.text()?.map(|_| folder.join(POLICY));
            way.tokens = tokens::make(program, &way.url, url, policy.as_deref(), which.tenants()).await?;
        }
        let mut probe = Probe::new(Some(process.pid), options.as_ref()).await?;
        if let Some(collector) = &collector {
            probe.look_at(collector).await?;
        }
        Ok(BenchServer { way, probe, process: Some(process), collector, database, which })
    }

    /// Stops all started servers; returns the first error.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        for server in self.running {
            // The server first: it sends the last of its telemetry at its end.
            for process in [server.process, server.collector].into_iter().flatten() {
                outcome = outcome.and(process.stop().await);
            }
            if let Some(database) = server.database {
                outcome = outcome.and(database.stop().await.map_err(Into::into));
            }
        }
        outcome
    }
}

impl BenchServer {
    /// Warnings and errors of its log; none for a server started elsewhere.
    pub(super) fn trouble(&self) -> Option<(usize, Vec<String>)> {
        self.process.as_ref().map(Process::trouble)
    }
}

async fn collecting(folder: &Path) -> anyhow::Result<Process> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    Process::start(&program, &["bench-collector"], &[], folder.join("collector.log")).await
}

async fn serving(
    which: &ServerKind,
    folder: &Path,
    variables: &[(&str, String)],
    answers: Option<&PairAnswers>,
) -> anyhow::Result<Process> {
    let log = folder.join("log");
    match which {
        ServerKind::Own { program, policy, transport, tenants, encrypted, .. } => {
            let socket = format!("unix:{}", folder.join("socket").display());
            let listen = if *transport == Transport::Unix { &socket } else { "127.0.0.1:0" };
            let mut args = vec!["serve", "--listen", listen];
            let tls = if transport.has_tls() { Some(CertificateFiles::make(folder).await?) } else { None };
            if let Some(CertificateFiles { certificate, key }) = &tls {
                let [certificate, key] = [certificate, key].map(|path| path.to_str().context("a path that is no text"));
                args.extend(["--tls-cert", certificate?, "--tls-key", key?]);
            }
            let path = folder.join(POLICY);
            if let Some(text) = policy.text()? {
                std::fs::write(&path, text).context("the policy cannot be written")?;
                args.extend(["--policy", path.to_str().context("a path that is no text")?]);
            }
            let keys = encrypted.then(|| keys::make(folder, &tokens::tenants(*tenants))).transpose()?;
            if let Some(keys) = &keys {
                args.extend(["--keys", keys.to_str().context("a path that is no text")?]);
            }
            Process::start(program, &args, variables, log).await
        }
        ServerKind::Yardstick(kind, _) => {
            answers.context("no answers are known yet")?.write(folder)?;
            let program = std::env::current_exe().context("this program cannot be found")?;
            let answers = folder.to_str().context("a path that is no text")?;
            let args = ["bench-yardstick", kind.name(), "--answers", answers];
            Process::start(&program, &args, variables, log).await
        }
        ServerKind::Running { .. } => anyhow::bail!("it runs already"),
    }
}
