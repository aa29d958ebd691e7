//! The tracker in C99: warnings, memory, and delivery.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::delivery::{self, PATIENCE};
use super::source;
use crate::support::gateway::{Done, command, run_within};

/// What every build must pass.
const STRICT: &[&str] = &["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"];
const TESTS: &[&str] = &["test.c", "test_port.c", "test_answer.c", "test_power.c"];
const LIBRARY: &[&str] = &["tg_text.c", "tg_store.c", "tg_batch.c", "tg_answer.c", "tg_step.c"];

/// A folder for built programs, outside the sources.
pub(super) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

/// Compiles files of `clients/c/` (or of anywhere, by their whole path) with the library.
fn compile(folder: &Path, name: &str, files: &[&str], more: &[&str]) -> PathBuf {
    let built = folder.join(name);
    let mut cc = command("cc", &source("c"));
    cc.args(STRICT).args(more).arg("-o").arg(&built).args(files).args(LIBRARY).args(["-lmbedcrypto", "-lz"]);
    let done = run_within(PATIENCE, &mut cc);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{name} does not compile cleanly");
    built
}

/// The example, in whose process allocating after the start is fatal.
fn tracker(folder: &Path) -> PathBuf {
    compile(folder, "tracker", &["tracker.c", "port_posix.c", "no_allocation.c"], &["-DTG_NO_ALLOCATION"])
}

/// The same, as every delivery test starts it.
pub(super) fn starter(built: &TempDir) -> impl Fn(&Path) -> Command + use<> {
    let program = tracker(built.path());
    move |here| command(&program, here)
}

/// A program under valgrind, where any fault is fatal.
fn valgrind(program: &Path, here: &Path) -> Command {
    let mut valgrind = command("valgrind", here);
    valgrind
        .args(["--quiet", "--error-exitcode=97", "--leak-check=full", "--errors-for-leak-kinds=all"])
        .args(["--show-leak-kinds=all", "--track-origins=yes"])
        .arg(program);
    valgrind
}

fn expect_clean(done: &Done) {
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
}

#[test]
fn its_parts_hold_under_valgrind() {
    let built = folder();
    let program = compile(built.path(), "test", TESTS, &["-Wconversion", "-Wshadow"]);
    expect_clean(&run_within(PATIENCE, &mut valgrind(&program, built.path())));
}

#[test]
fn its_parts_hold_under_sanitizers() {
    let built = folder();
    let sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile(built.path(), "test", TESTS, &sanitize);
    expect_clean(&run_within(PATIENCE, &mut command(&program, built.path())));
}

#[test]
fn it_compiles_without_compression() {
    let built = folder();
    let program = compile(built.path(), "test", TESTS, &["-DTG_ZLIB=0"]);
    expect_clean(&run_within(PATIENCE, &mut command(&program, built.path())));
}

/// The guard that the delivery tests rely on sees what zlib allocates.
#[test]
fn allocating_after_the_start_is_fatal() {
    let built = folder();
    let main = built.path().join("main.c");
    let text = "#include <string.h>\n#include <zlib.h>\nvoid forbid_allocation(int forbidden);\nint main(void) {\n\
                z_stream stream;\nmemset(&stream, 0, sizeof stream);\nforbid_allocation(1);\n\
                return deflateInit(&stream, 9);\n}\n";
    std::fs::write(&main, text).expect("written");
    let program = built.path().join("main");
    let mut cc = command("cc", &source("c"));
    cc.arg("-o").arg(&program).arg(&main).args(["no_allocation.c", "-lz"]);
    expect_clean(&run_within(PATIENCE, &mut cc));
    let done = run_within(PATIENCE, &mut command(&program, built.path()));
    assert_eq!((done.code, done.err.as_str()), (Some(99), "allocated after the start\n"));
}

#[test]
fn delivers_through_a_bad_link() {
    let built = folder();
    delivery::delivers_through_a_bad_link(starter(&built), 300);
}

#[test]
fn delivers_through_a_bad_link_under_valgrind() {
    let built = folder();
    // Valgrind has its own malloc, so that the guard would not be asked.
    let program = compile(built.path(), "tracker", &["tracker.c", "port_posix.c"], &[]);
    delivery::delivers_through_a_bad_link(|here| valgrind(&program, here), 120);
}

#[test]
fn survives_kills() {
    let built = folder();
    delivery::survives_kills(starter(&built));
}

#[test]
fn begins_an_epoch_with_new_storage() {
    let built = folder();
    delivery::begins_an_epoch_with_new_storage(starter(&built));
}

#[test]
fn does_not_hammer_when_refused() {
    let built = folder();
    delivery::does_not_hammer_when_refused(starter(&built));
}

#[test]
fn compresses() {
    let built = folder();
    delivery::compresses(starter(&built));
}

#[test]
fn says_why_it_cannot_start() {
    let built = folder();
    delivery::says_why_it_cannot_start(starter(&built));
}
