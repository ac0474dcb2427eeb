// jail: a program in a mount namespace of its own whose root is a directory, as in a container.
//
//   jail ROOT WORD... -- PROGRAM ARGUMENT...
//
// Words: "overlay:LOWER:UPPER:WORK" mounts an overlay on ROOT first; "proc" mounts /proc there,
// "hidepid" the same with hidepid=2; "noexec" makes the file system at ROOT/tmp a noexec tmpfs;
// "ro" makes the root read-only. The namespaces besides are the caller's to make (unshare).
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void must(int result, const char *what) {
  if (result < 0) {
    fprintf(stderr, "jail: %s: %s\n", what, strerror(errno));
    _exit(125);
  }
}

int main(int count, char **words) {
  if (count < 4) return 2;
  const char *root = words[1];
  must(unshare(CLONE_NEWNS), "unshare");
  must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
  must(mount(root, root, NULL, MS_BIND | MS_REC, NULL), "bind");
  must(chdir(root), root);
  int read_only = 0, at = 2;
  for (; at < count && strcmp(words[at], "--"); at++) {
    char *word = words[at];
    if (!strncmp(word, "overlay:", 8)) {
      char *save, text[4096];
      char *lower = strtok_r(word + 8, ":", &save), *upper = strtok_r(NULL, ":", &save), *work = strtok_r(NULL, ":", &save);
      snprintf(text, sizeof text, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
      must(mount("overlay", root, "overlay", 0, text), "overlay");
      must(chdir(root), root);
    } else if (!strcmp(word, "proc")) {
      must(mount("proc", "proc", "proc", 0, NULL), "proc");
    } else if (!strcmp(word, "hidepid")) {
      must(mount("proc", "proc", "proc", 0, "hidepid=2"), "proc");
    } else if (!strcmp(word, "noexec")) {
      must(mount("tmpfs", "tmp", "tmpfs", MS_NOEXEC | MS_NOSUID, NULL), "tmp");
    } else if (!strcmp(word, "ro")) {
      read_only = 1;
    } else {
      fprintf(stderr, "jail: what is %s?\n", word);
      return 2;
    }
  }
  must(mkdir("old", 0755) < 0 && errno != EEXIST ? -1 : 0, "old");
  if (read_only) must(mount(NULL, ".", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), "read-only");
  must((int)syscall(SYS_pivot_root, ".", "old"), "pivot_root");
  must(chdir("/"), "chdir");
  must(umount2("/old", MNT_DETACH), "umount");
  if (at + 1 >= count) return 2;
  execv(words[at + 1], words + at + 1);
  must(-1, words[at + 1]);
}
