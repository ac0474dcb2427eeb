//! Null pointers, strings that are not UTF-8, and failures, from a C program.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

const SOURCE: &str = r#"
#include <midair/midair.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what)                                             \
  if (!(what)) {                                                \
    printf("%s: %s\n", #what, midair_error_message());          \
    return 1;                                                   \
  }

static int count(const midair_kernel *kernel, void *data) {
  (void)kernel;
  (void)data;
  return 0;
}

static void *on_a_thread(void *data) {
  *(int *)data = *midair_error_message() == 0 && *midair_error_remedy() == 0;
  return data;
}

int main(void) {
  CHECK(*midair_error_message() == 0 && *midair_error_remedy() == 0);
  CHECK(midair_options_add(NULL, "kernel-trace", NULL, 0) == 2);
  CHECK(strstr(midair_error_message(), "null") && *midair_error_remedy());
  CHECK(midair_options_set_duration(NULL, 1) == 2);

  /* Greater than any pid. */
  midair_options *options = midair_options_new(4194304);
  CHECK(options);
  const char *none[] = {NULL}, *bytes[] = {"\xff"}, *word[] = {"SQ_WAVES"};
  CHECK(midair_options_add(options, NULL, NULL, 0) == 2);
  CHECK(midair_options_add(options, "pmc", NULL, 1) == 2);
  CHECK(midair_options_add(options, "pmc", none, 1) == 2);
  CHECK(midair_options_add(options, "pmc", bytes, 1) == 2);
  CHECK(strstr(midair_error_message(), "UTF-8"));

  midair_session *session = (midair_session *)&word;
  CHECK(midair_start(NULL, &session) == 2 && !session);
  CHECK(midair_start(options, NULL) == 2);
  session = (midair_session *)&word;
  CHECK(midair_start(options, &session) > 2 && !session);
  CHECK(*midair_error_message() && *midair_error_remedy());
  CHECK(midair_options_add(options, "pmc", word, 1) == 0);
  CHECK(midair_options_add(options, "nonsense", NULL, 0) == 0);
  CHECK(midair_start(options, &session) == 2 && !session);
  CHECK(strstr(midair_error_message(), "--nonsense"));
  midair_options_free(options);
  midair_options_free(NULL);

  midair_recording *recording = (midair_recording *)&word;
  CHECK(midair_detach(NULL, &recording) == 2 && !recording);
  CHECK(midair_wait(NULL, NULL) == 2);
  CHECK(midair_recording_kernels(NULL, count, NULL) == 2);
  CHECK(midair_recording_kernels(NULL, NULL, NULL) == 2);
  CHECK(midair_recording_write(NULL, "csv", "/tmp/x") == 2);
  CHECK(midair_recording_write(NULL, NULL, NULL) == 2);
  CHECK(midair_recording_status(NULL) == 2);
  midair_recording_free(NULL);

  /* Failures belong to a thread. */
  int empty = 0;
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, on_a_thread, &empty) && !pthread_join(thread, NULL));
  CHECK(empty && *midair_error_message());
  puts("done");
  return 0;
}
"#;

#[test]
fn mistakes_of_the_caller_have_a_status_and_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let built = own.parent().unwrap().join("libmidair_so.so");
    let library = folder.path().join("libmidair.so.0");
    std::fs::copy(built, &library).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, SOURCE).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source, &library])
        .arg("-I")
        .arg(include)
        .arg("-Wl,-rpath,$ORIGIN")
        .status()
        .unwrap();
    assert!(compiled.success());
    let ran = Command::new(&program)
        .env_remove("MIDAIR")
        .output()
        .unwrap();
    assert!(ran.status.success() && ran.stdout == b"done\n", "{ran:?}");
}
