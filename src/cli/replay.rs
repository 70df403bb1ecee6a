//! `callgate replay`: judges recorded calls offline, without a database. It prints one JSON line per call to standard
//! output and the figures to standard error; with `--json` only the figures, to standard output. Deterministic.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal as _, Read, Write},
    path::{Path, PathBuf},
    rc::Rc,
};

use super::source::RowSource;
use anyhow::{anyhow, bail};
use callgate_client::progress::Progress;
use callgate_core::{
    offline::{judge::OfflineJudge, output_line::ReplayLine, summary::Summary},
    policy::{self, Policy},
};

/// Judge recorded traces offline: one JSON line a call on standard output, a summary on standard error
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// Enforce the policy whatever its mode: a refused call has no outcome. By default every recorded outcome
    /// counts
    #[arg(long)]
    pub enforce: bool,
    /// The policy [default: the built-in one]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print only the summary, as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Recorded traces in JSON lines, plain or gzipped; `-` is standard input
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
}

/// Runs the command on standard output and standard error.
///
/// # Errors
/// Invalid input, with file, line and field. A closed standard output is no error.
pub fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    run_to(args, &mut io::stdout().lock(), &mut io::stderr())
}

/// Runs the command with lines on `out` and the summary on `err`.
///
/// # Errors
/// As [`run`].
pub fn run_to(args: &ReplayArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<()> {
    let policy = args.policy.as_deref().map_or_else(|| Ok(Policy::default()), read_policy)?;
    let progress = Rc::new(Progress::new(bytes(&args.traces)?));
    let sources = args.traces.iter().map(|path| open(path, &progress));
    let judged = if args.json {
        run_on(sources, policy, args.enforce, &mut io::sink())
            .and_then(|summary| Ok(writeln!(out, "{}", summary.to_json()?).map(|()| summary)?))
    } else {
        run_on(sources, policy, args.enforce, out)
    };
    progress.clear();
    let summary = match judged.map_err(|error| error.downcast::<io::Error>()) {
        Ok(summary) => summary,
        Err(Ok(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(Ok(error)) => bail!("cannot write the output: {error}"),
        Err(Err(error)) => return Err(error),
    };
    // A closed standard error only drops the summary.
    if !args.json {
        let _ = write!(err, "{summary}");
    }
    Ok(())
}

/// Judges the rows of all `sources` in order, one line each on `out`. A trace may span sources.
///
/// # Errors
/// The first invalid row, or the [`io::Error`] of `out`. Earlier lines are written.
pub fn run_on(
    sources: impl IntoIterator<Item = anyhow::Result<RowSource>>,
    policy: Policy,
    enforce: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Summary> {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut judge = OfflineJudge::new(policy, enforce);
    for source in sources {
        let mut source = source?;
        while let Some(row) = source.next_row()? {
            let assessed = judge.judge(&row).map_err(|problem| anyhow!("{}: {problem}", source.position()))?;
            serde_json::to_writer(&mut out, &ReplayLine::new(&row, &assessed)).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(judge.into_summary())
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let text = fs::read_to_string(path).map_err(|error| anyhow!("{}: cannot be read: {error}", path.display()))?;
    policy::compile(&text).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(|error| format!("{}: {error}", path.display())).collect();
        anyhow!(lines.join("\n"))
    })
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn open(path: &Path, progress: &Rc<Progress>) -> anyhow::Result<RowSource> {
    if is_stdin(path) {
        return RowSource::new("stdin", io::stdin().lock());
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| anyhow!("{name}: cannot be opened: {error}"))?;
    RowSource::new(name, CountedFile { file, progress: Rc::clone(progress) })
}

/// A file that counts its read bytes.
struct CountedFile {
    file: File,
    progress: Rc<Progress>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.progress.add(bytes as u64);
        Ok(bytes)
    }
}

/// Total size of the files, which verifies that they exist; 0 where no progress is shown, because it would tear lines
/// on the same terminal.
fn bytes(traces: &[PathBuf]) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for path in traces.iter().filter(|path| !is_stdin(path)) {
        let file = fs::metadata(path).map_err(|error| anyhow!("{}: cannot be opened: {error}", path.display()))?;
        bytes += file.len();
    }
    let is_told =
        io::stderr().is_terminal() && !io::stdout().is_terminal() && !traces.iter().any(|path| is_stdin(path));
    Ok(if is_told { bytes } else { 0 })
}
