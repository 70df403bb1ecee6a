//! `callgate database prices`: replaces the prices of models.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use callgate_store::{ModelPrices, parse_url, set_prices};

/// Arguments of `callgate database prices`.
#[derive(Debug, Args)]
pub(super) struct PricesArgs {
    /// The prices, in YAML: they replace all that the database has
    file: PathBuf,
    /// The servers' database
    #[arg(long, value_name = "URL", env = "CALLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

pub(super) async fn run(args: PricesArgs) -> anyhow::Result<()> {
    let options = parse_url(&args.database_url).context("--database-url")?;
    let name = args.file.display();
    let text = fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let prices = ModelPrices::parse(&text).map_err(|problem| anyhow!("{name}: {problem}"))?;
    set_prices(options, &prices).await?;
    outln!("The database has {} prices, those of {name}.", prices.count());
    Ok(())
}
