//! Scripts and styles, in the binary. A path holds the beginning of its file's hash, so that a browser may keep a file
//! for ever and never has the wrong one.

use std::sync::LazyLock;

use axum::{
    Router,
    extract::Path,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::Console;

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All of them; `assets/README.md` lists those of third parties.
const ASSETS: [Asset; 8] = [
    Asset { name: "console.css", kind: STYLE, bytes: include_bytes!("assets/console.css") },
    Asset { name: "console.js", kind: SCRIPT, bytes: include_bytes!("assets/console.js") },
    Asset { name: "theme.js", kind: SCRIPT, bytes: include_bytes!("assets/theme.js") },
    Asset { name: "charts.js", kind: SCRIPT, bytes: include_bytes!("assets/charts.js") },
    Asset { name: "htmx.js", kind: SCRIPT, bytes: include_bytes!("assets/htmx-4.0.1.min.js") },
    Asset { name: "uplot.js", kind: SCRIPT, bytes: include_bytes!("assets/uplot-1.6.32.min.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", bytes: include_bytes!("assets/icon.svg") },
    Asset { name: "uplot.css", kind: STYLE, bytes: include_bytes!("assets/uplot-1.6.32.min.css") },
];

static PATHS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let path = |asset: &Asset| {
        let hash = hex::encode(&Sha256::digest(asset.bytes)[..6]);
        (asset.name, format!("/assets/{hash}/{}", asset.name))
    };
    ASSETS.iter().map(path).collect()
});

/// Path of a file, for templates. An unknown name gets a path without a file.
pub(super) fn path(name: &str) -> &'static str {
    PATHS.iter().find(|(known, _)| *known == name).map_or("/assets/", |(_, path)| path)
}

pub(super) fn router() -> Router<Console> {
    Router::new().route("/assets/{hash}/{name}", get(asset))
}

async fn asset(Path((hash, name)): Path<(String, String)>) -> Response {
    let asked = format!("/assets/{hash}/{name}");
    // Of another build than the one that made the page: a browser gets nothing rather than the wrong file.
    let Some(asset) = ASSETS.iter().find(|asset| path(asset.name) == asked) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_what_is_not_ours_tells_version_licence_and_hash() {
        let list = include_str!("assets/README.md");
        for asset in ASSETS.iter().filter(|asset| asset.name.starts_with("htmx") || asset.name.starts_with("uplot")) {
            let hash = hex::encode(Sha256::digest(asset.bytes));
            assert!(list.contains(&hash), "{}: {hash} does not stand in assets/README.md", asset.name);
        }
    }

    #[test]
    fn a_page_with_its_charts_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes < 120_000, "{bytes} bytes of scripts and styles leave a page less than 30 kB of its 150");
    }
}
