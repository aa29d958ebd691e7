//! The repository checks its own shape: who may import whom, how long files are, what must not be in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms of `src/`, each with the rooms it may import from. An arrow that is not here must not exist.
/// `main` and `lib` name rooms only to declare them.
const IMPORTS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("fleet", &["domain"]),
    ("store", &["domain"]),
    // Configuration builds the options that the store and its writer are opened with.
    ("ops", &["domain", "store"]),
    ("http", &["domain", "store", "ops"]),
    ("app", &["domain", "store", "ops", "http"]),
    ("cli", &["domain", "fleet", "store", "ops", "app"]),
];

/// Crates that only one place may name.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("rusqlite", &["src/store/sqlite"]),
    ("axum", &["src/http"]),
    ("hyper", &["src/http"]),
    ("utoipa", &["src/http"]),
    ("prometheus", &["src/ops/metrics", "src/ops/metrics.rs"]),
    ("clap", &["src/cli", "src/main.rs", "src/ops/config"]),
    ("reqwest", &["src/cli"]),
    ("rustix", &["src/ops/descriptors.rs"]),
    ("rustls", &["src/ops/tls.rs", "src/cli/web.rs"]),
    ("tokio_rustls", &["src/http"]),
    // Packing is the senders' side, unpacking the gateway's; neither is anybody else's.
    ("flate2", &["src/fleet", "src/domain/decode"]),
    ("zstd", &["src/fleet", "src/domain/decode"]),
    ("ciborium", &["src/fleet", "src/domain/decode"]),
    ("ciborium_ll", &["src/domain/decode"]),
    ("indicatif", &["src/cli/simulate"]),
];

/// What `domain` must do without: it is pure.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::time", "std::thread", "std::env", "tokio", "tracing", "http::"];

/// Longest file, in lines: longer ones hold more than one room.
const LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_under(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(listing) = fs::read_dir(&folder) else { continue };
        for entry in listing {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push((name(&path), fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned()
}

/// Lines without comments: what the compiler reads.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split("//").next().unwrap_or(line))
}

/// Rooms that a file names by `crate::room` (or, in the binary, `tidegate::room`).
fn rooms_named(text: &str) -> Vec<String> {
    let joined: String = code(text).collect::<Vec<_>>().join("\n");
    let mut rooms = Vec::new();
    for prefix in ["crate::", "tidegate::"] {
        for (at, _) in joined.match_indices(prefix) {
            let rest = &joined[at + prefix.len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap_or_default().split(',').collect(),
                None => vec![rest],
            };
            for name in names {
                let room: String =
                    name.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                rooms.push(room);
            }
        }
    }
    rooms
}

#[test]
fn imports_run_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (file, text) in files_under("src", "rs") {
        let room = file.trim_start_matches("src/").split(['/', '.']).next().unwrap_or_default().to_owned();
        if room == "main" || room == "lib" {
            continue;
        }
        let Some(may) = allowed.get(room.as_str()) else {
            wrong.push(format!("{file}: the room {room} is not in the table"));
            continue;
        };
        for named in rooms_named(&text) {
            if allowed.contains_key(named.as_str()) && named != room && !may.contains(&named.as_str()) {
                wrong.push(format!("{file}: {room} must not import {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_import_check_sees_what_it_should() {
    assert_eq!(
        rooms_named("use crate::{domain::ids, http};\nlet x = crate::store::open();"),
        ["domain", "http", "store"]
    );
    assert_eq!(rooms_named("// crate::http\nuse super::x;"), Vec::<String>::new());
}

#[test]
fn each_crate_is_named_only_in_its_room() {
    let mut wrong = Vec::new();
    for (file, text) in files_under("src", "rs") {
        for (name, rooms) in ONLY_IN {
            let mine = rooms.iter().any(|room| file == *room || file.starts_with(&format!("{room}/")));
            let used = code(&text).any(|line| names_crate(line, name));
            if used && !mine {
                wrong.push(format!("{file}: only {rooms:?} may name {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}::"))
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':'))
}

#[test]
fn the_domain_is_pure() {
    let mut wrong = Vec::new();
    for (file, text) in files_under("src/domain", "rs") {
        for line in code(&text) {
            for word in IMPURE.iter().filter(|word| line.contains(*word)) {
                wrong.push(format!("{file}: {word} in {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_open_names_a_backend() {
    for (file, text) in files_under("src", "rs") {
        let inside = file.starts_with("src/store/sqlite/")
            || ["src/store/open.rs", "src/store/mod.rs"].contains(&file.as_str());
        let named =
            code(&text).any(|line| names_crate(line, "SqliteStore") || line.contains("store::sqlite"));
        assert!(inside || !named, "{file} names the SQLite backend");
    }
}

#[test]
fn files_are_small() {
    let long: Vec<String> = ["src", "tests", "benches"]
        .iter()
        .flat_map(|folder| files_under(folder, "rs"))
        .filter(|(_, text)| text.lines().count() > LINES_MAX)
        .map(|(file, text)| format!("{file} has {} lines", text.lines().count()))
        .collect();
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {}", long.join(", "));
}

#[test]
fn every_source_file_is_compiled() {
    let all: BTreeMap<String, String> = files_under("src", "rs").into_iter().collect();
    for file in all.keys().filter(|file| !["src/lib.rs", "src/main.rs"].contains(&file.as_str())) {
        let path = PathBuf::from(file);
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let folder = path.parent().expect("a folder");
        let (parent, module) = if stem == "mod" {
            let above = folder.parent().expect("a folder");
            (above.to_owned(), folder.file_name().expect("a name").to_string_lossy().into_owned())
        } else {
            (folder.to_owned(), stem)
        };
        let mut owners = vec![parent.join("mod.rs"), parent.with_extension("rs")];
        if parent == Path::new("src") {
            owners = vec![PathBuf::from("src/lib.rs"), PathBuf::from("src/main.rs")];
        }
        let declared = owners
            .iter()
            .filter_map(|owner| all.get(&*owner.to_string_lossy()))
            .any(|text| code(text).any(|line| line.trim_end().ends_with(&format!("mod {module};"))));
        assert!(declared, "{file} is declared by none of {owners:?}");
    }
}

#[test]
fn documents_name_files_that_exist() {
    let mut missing = Vec::new();
    for document in ["README.md", "ARCHITECTURE.md", "docs/protocol.md", "fixtures/cases/README.md"] {
        let text = fs::read_to_string(root().join(document)).expect("the document");
        for quoted in text.split('`').skip(1).step_by(2) {
            let looks_like_path = ["src/", "tests/", "schema/", "fixtures/", "benches/", "docs/", "scripts/"]
                .iter()
                .any(|folder| quoted.starts_with(folder));
            if looks_like_path && !quoted.contains(['*', '{', ' ', '…']) && !root().join(quoted).exists() {
                missing.push(format!("{document}: {quoted}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
