//! Checks of the private database: programs, data, and disk.

use std::path::Path;

use super::check::{Area, DoctorCheck};
use callgate_postgres::{DataDirectory, PostgresSettings, examine};
use callgate_server::{config::DatabaseConfig, database};

const AREA: Area = Area::Private;
/// Thresholds of free disk space: error, and warning.
const BYTES_WRONG: u64 = 1 << 30;
const BYTES_WARNED: u64 = 5 << 30;

/// The checks, and the URL of the database if it runs.
pub(super) async fn looked_at(config: &DatabaseConfig) -> (Vec<DoctorCheck>, Option<String>) {
    let data_dir = match database::data_dir(config.data_dir.as_deref()) {
        Ok(data_dir) => data_dir,
        Err(error) => {
            return (vec![DoctorCheck::wrong(AREA, "data", error, "set --data-dir DIR (CALLGATE_DATA_DIR)")], None);
        }
    };
    let shown = data_dir.display();
    let free = disk(&data_dir);
    match examine(&PostgresSettings { data_dir: data_dir.clone(), pg_bin: config.pg_bin.clone() }).await {
        Err(error) if error.is_permission_denied() => {
            let cure = "run this as the user of `callgate serve`";
            (vec![DoctorCheck::wrong(AREA, "data", error, cure), free], None)
        }
        Err(error) => {
            let cure = "follow the message, or use your own server with --database-url";
            (vec![DoctorCheck::wrong(AREA, "data", error, cure), free], None)
        }
        Ok(DataDirectory { cluster_major: None, programs, .. }) => {
            let data = DoctorCheck::ok(AREA, "data", format!("{shown} is empty; the first start creates the database"));
            (vec![programs_of(programs), data, free], None)
        }
        Ok(DataDirectory { cluster_major: Some(major), programs, running }) => {
            let data = match &running {
                Some(_) => format!("PostgreSQL {major} runs in {shown}"),
                None => format!("PostgreSQL {major} in {shown}; it does not run"),
            };
            let data = DoctorCheck::ok(AREA, "data", data);
            (vec![programs_of(programs), data, free], running.map(|running| running.connection.url()))
        }
    }
}

fn programs_of(found: Result<String, callgate_postgres::PrivatePostgresError>) -> DoctorCheck {
    match found {
        Ok(found) => DoctorCheck::ok(AREA, "programs", found),
        Err(error) => DoctorCheck::wrong(AREA, "programs", error, "follow the message"),
    }
}

/// Free space at the data's location.
fn disk(data_dir: &Path) -> DoctorCheck {
    let there = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let stat = match rustix::fs::statvfs(there) {
        Ok(stat) => stat,
        Err(error) => return DoctorCheck::skipped(Area::Disk, "data", format!("{}: {error}", there.display())),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let text = format!("{} free at {}, for data and write-ahead log", gib(free), there.display());
    let cure = "free some space or enlarge it: without space the database stops, and every answer with it; \
                callgate tenants retention and callgate database retain limit the stored data";
    match free {
        ..BYTES_WRONG => DoctorCheck::wrong(Area::Disk, "data", text, cure),
        BYTES_WRONG..BYTES_WARNED => DoctorCheck::warning(Area::Disk, "data", text, cure),
        _ => DoctorCheck::ok(Area::Disk, "data", text),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
