//! The README's own lines, run as a newcomer would type them.

use std::path::Path;

use crate::support::gateway::{BINARY, Folder, Gateway, command, configure, run, tidegate};

/// The fenced block behind a marker.
fn block(marker: &str) -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
        .expect("it is there");
    let (_, rest) = readme.split_once(marker).expect("the marker");
    let (_, rest) = rest.split_once("```sh\n").expect("a block");
    let (lines, _) = rest.split_once("```").expect("its end");
    lines.to_owned()
}

/// `make run`'s place: a store in run/ with generated secrets, beside the binary the README names.
#[test]
fn uploading_with_curl_and_openssl() {
    let folder = Folder::new();
    let run_folder = folder.path().join("run");
    std::fs::create_dir(&run_folder).expect("created");
    let mut serve = tidegate(folder.path(), &["serve"]);
    configure(&mut serve, &run_folder.join("tidegate.db")).env_remove("TIDEGATE_FLEET_KEYS");
    let gateway = Gateway::start_with(&mut serve);
    let lines = block("<!-- tested: curl -->");
    let lines = lines
        .replace("http://127.0.0.1:8080", &format!("http://{}", gateway.address))
        .replace("target/release/tidegate", BINARY);
    let done = run(command("sh", folder.path()).args(["-eu", "-c", &lines]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.starts_with("HTTP/1.1 200 OK\r\n"), "{}", done.out);
    let receipt = r#"{"status":"processed","accepted":1,"applied":true,"epoch_id":0,"last_seq":1}"#;
    assert!(done.out.ends_with(receipt), "{}", done.out);
}
