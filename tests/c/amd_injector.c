// amd_injector PID TOOL [NAME=VALUE...]: AMD's attach protocol as its injector plays it, on this
// machine's own terms: one thread named rocp-bg-attach is seized, memory is mapped in the target by
// a system call of that thread, an environment buffer and the tool's name are written there, and
// rocprofiler_register_attach is called; a line on standard input (or its end) calls
// rocprofiler_register_detach. Says "attach CODE" and "detach CODE" with what came back, and "took
// NANOSECONDS" until the attach came back; or on standard error why it came to nothing.
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t pid, tid;

#define GIVE_UP(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static void listener(void) {
  char path[300];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char text[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%s/comm", pid, entry->d_name);
    FILE *file = fopen(path, "r");
    if (file && fgets(text, sizeof text, file) && !strcmp(text, "rocp-bg-attach\n")) tid = atoi(entry->d_name);
    if (file) fclose(file);
  }
  if (!tid) GIVE_UP("no thread rocp-bg-attach");
}

// The register library's file as the target maps it, and where its first byte would be.
static unsigned char *library(unsigned long *base) {
  char path[64], whole[100] = "", line[600], name[600] = "";
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  FILE *maps = fopen(path, "r");
  while (maps && fgets(line, sizeof line, maps)) {
    char *found = strchr(line, '/');
    if (!found || !strstr(found, "/librocprofiler-register.so")) continue;
    unsigned long start, end, offset;
    sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset);
    found[strcspn(found, "\n")] = 0;
    if (*name && strcmp(name, found)) GIVE_UP("two register libraries");
    if (!*name) *base = start - offset, snprintf(whole, sizeof whole, "/proc/%d/map_files/%lx-%lx", pid, start, end);
    strcpy(name, found);
  }
  if (!*name) GIVE_UP("no register library");
  int file = open(whole, O_RDONLY);
  struct stat info;
  if (file < 0 || fstat(file, &info)) GIVE_UP("%s: %s", whole, strerror(errno));
  unsigned char *bytes = mmap(NULL, info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (bytes == MAP_FAILED) GIVE_UP("mmap");
  return bytes;
}

static unsigned long function(const unsigned char *file, unsigned long base, const char *name) {
  const Elf64_Ehdr *header = (const void *)file;
  const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const char *names = (const char *)file + sections[sections[i].sh_link].sh_offset;
    const Elf64_Sym *symbols = (const void *)(file + sections[i].sh_offset);
    for (unsigned long n = 0; n < sections[i].sh_size / sizeof *symbols; n++)
      if (symbols[n].st_shndx && ELF64_ST_TYPE(symbols[n].st_info) == STT_FUNC && !strcmp(names + symbols[n].st_name, name))
        return base + symbols[n].st_value;
  }
  GIVE_UP("no %s", name);
}

static unsigned long entry_point(void) {
  char path[64];
  Elf64_auxv_t pair;
  snprintf(path, sizeof path, "/proc/%d/auxv", pid);
  int file = open(path, O_RDONLY);
  while (read(file, &pair, sizeof pair) == sizeof pair)
    if (pair.a_type == AT_ENTRY) return pair.a_un.a_val;
  GIVE_UP("no entry point");
}

// As AMD's does, a stop of any other kind is let go on with its signal.
static void stopped(void) {
  for (int status;;) {
    if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status)) GIVE_UP("it ended: %x", status);
    if (WSTOPSIG(status) == SIGTRAP) return;
    if (ptrace(PTRACE_CONT, tid, NULL, (void *)(long)WSTOPSIG(status))) GIVE_UP("cont: %s", strerror(errno));
  }
}

// Runs three bytes of code at the program's entry point with these registers; what is then in rax.
static unsigned long run(unsigned code, struct user_regs_struct want) {
  unsigned long entry = entry_point();
  struct user_regs_struct before, now;
  if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL)) GIVE_UP("interrupt: %s", strerror(errno));
  stopped();
  if (ptrace(PTRACE_GETREGS, tid, NULL, &before)) GIVE_UP("getregs");
  long word = ptrace(PTRACE_PEEKTEXT, tid, entry, NULL);
  if (ptrace(PTRACE_POKETEXT, tid, entry, (word & ~0xffffffL) | code)) GIVE_UP("poke");
  now = before;
  now.rip = entry, now.rsp = (before.rsp - 128) & ~15ul;
  now.rax = want.rax, now.rdi = want.rdi, now.rsi = want.rsi, now.rdx = want.rdx, now.r10 = want.r10, now.r8 = want.r8, now.r9 = want.r9;
  if (ptrace(PTRACE_SETREGS, tid, NULL, &now) || ptrace(PTRACE_CONT, tid, NULL, NULL)) GIVE_UP("cont");
  stopped();
  if (ptrace(PTRACE_GETREGS, tid, NULL, &now) || ptrace(PTRACE_POKETEXT, tid, entry, word) || ptrace(PTRACE_SETREGS, tid, NULL, &before) ||
      ptrace(PTRACE_CONT, tid, NULL, NULL))
    GIVE_UP("putting back: %s", strerror(errno));
  return now.rax;
}

static unsigned long system_call(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  return run(0xcc050f, (struct user_regs_struct){.rax = number, .rdi = a, .rsi = b, .rdx = c, .r10 = d, .r8 = -1});
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  struct timespec began, in;
  clock_gettime(CLOCK_MONOTONIC, &began);
  pid = atoi(argv[1]);
  listener();
  unsigned long base = 0;
  const unsigned char *file = library(&base);
  unsigned long attach = function(file, base, "rocprofiler_register_attach"), detach = function(file, base, "rocprofiler_register_detach");

  static char memory[65536];
  unsigned count = argc - 3, used = 4;
  memcpy(memory, &count, 4);
  for (int i = 3; i < argc; i++) {
    char *equals = strchr(argv[i], '=');
    if (!equals) return 2;
    *equals = 0;
    used += sprintf(memory + used, "%s", argv[i]) + 1;
    used += sprintf(memory + used, "%s", equals + 1) + 1;
  }
  unsigned tool = used;
  used += sprintf(memory + used, "%s", argv[2]) + 1;

  if (ptrace(PTRACE_SEIZE, tid, NULL, NULL)) GIVE_UP("seize: %s", strerror(errno));
  unsigned long place = system_call(SYS_mmap, 0, sizeof memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (place > -4096ul) GIVE_UP("no memory in the target");
  struct iovec from = {memory, used}, to = {(void *)place, used};
  if (process_vm_writev(pid, &from, 1, &to, 1, 0) != (ssize_t)used) GIVE_UP("write: %s", strerror(errno));
  unsigned code = run(0xccd0ff, (struct user_regs_struct){.rax = attach, .rdi = place, .rsi = place + tool});
  system_call(SYS_munmap, place, sizeof memory, 0, 0);
  clock_gettime(CLOCK_MONOTONIC, &in);
  printf("attach %u\n", code);
  fflush(stdout);
  if (!code) {
    (void)!getchar();
    printf("detach %u\n", (unsigned)run(0xccd0ff, (struct user_regs_struct){.rax = detach}));
  }
  printf("took %ld\n", (in.tv_sec - began.tv_sec) * 1000000000l + in.tv_nsec - began.tv_nsec);
  // Left by its own end: a running thread that was seized is let go.
  return 0;
}
