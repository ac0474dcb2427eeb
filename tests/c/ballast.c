// ballast: a library to preload, which makes the process that it is in heavy or odd before its main
// runs, as the environment says:
//   BALLAST_MAPS=N       N mappings
//   BALLAST_LOCK=1       mlockall of all that is and will be mapped
//   BALLAST_OPEN=PATH    dlopen of this library, for itself alone
//   BALLAST_SPACE=PATH   the same in a namespace of the loader of its own (dlmopen)
//   BALLAST_ALL=DIR      dlopen of everything in a directory
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void must(int good, const char *what) {
  if (good) return;
  const char *why = dlerror();
  fprintf(stderr, "ballast: %s: %s\n", what, why ? why : "failed");
  _exit(3);
}

__attribute__((constructor)) static void load(void) {
  const char *value = getenv("BALLAST_MAPS");
  if (value) {
    long count = atol(value);
    char *base = mmap(NULL, (size_t)count * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(base != MAP_FAILED, "mmap");
    // Every other page with rights of its own: each is a mapping.
    for (long page = 0; page + 1 < count; page += 2) must(!mprotect(base + page * 4096, 4096, PROT_READ), "mprotect");
  }
  value = getenv("BALLAST_OPEN");
  if (value) must(dlopen(value, RTLD_NOW | RTLD_LOCAL) != NULL, value);
  value = getenv("BALLAST_SPACE");
  if (value) must(dlmopen(LM_ID_NEWLM, value, RTLD_NOW) != NULL, value);
  value = getenv("BALLAST_ALL");
  if (value) {
    DIR *folder = opendir(value);
    must(folder != NULL, value);
    for (struct dirent *entry; (entry = readdir(folder));) {
      char path[4096];
      if (entry->d_name[0] == '.') continue;
      snprintf(path, sizeof path, "%s/%s", value, entry->d_name);
      must(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL, path);
    }
    closedir(folder);
  }
  if (getenv("BALLAST_LOCK")) must(!mlockall(MCL_CURRENT | MCL_FUTURE), "mlockall");
}
