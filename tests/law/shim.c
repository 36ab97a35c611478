/* Stands before the C library's functions that look at files, and lets one call fail. Preloaded by law/errors.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATHS 65536
#define LOG (8 << 20)

static int armed, at, number, calls; /* the call *at* (below 0: each) fails with *number* (below 0: is cut short) */
static char outside[PATHS], inside[PATHS]; /* prefixes, each between line feeds: not counted, but counted all the same */
static char log_[LOG];
static size_t logged;

static int begins_with_one_of(const char *path, const char *prefixes) {
  const char *prefix = prefixes, *end;
  while (*prefix && (end = strchr(prefix, '\n'))) {
    if (!strncmp(path, prefix, end - prefix)) return 1;
    prefix = end + 1;
  }
  return 0;
}

static void name_of(int fd, const char *name, char *path, size_t size) {
  char link[64];
  long length = 0;
  path[0] = 0;
  if (name && name[0] == '/') {
    snprintf(path, size, "%s", name);
    return;
  }
  if (fd == AT_FDCWD)
    snprintf(link, sizeof link, "/proc/self/cwd");
  else
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  length = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
  path[length > 0 ? length : 0] = 0;
  if (name && length > 0) snprintf(path + length, size - length, "/%s", name);
}

/* What is to happen to this call: 0 nothing, an error's number, or below 0. */
static int happens(const char *kind, int fd, const char *name) {
  char path[4096];
  int kept = errno;
  if (!armed) return 0;
  name_of(fd, name, path, sizeof path);
  errno = kept;
  if (path[0] != '/' || !strncmp(path, "/dev/null", 9) || !strncmp(path, "/dev/pts", 8)) return 0;
  if (begins_with_one_of(path, outside) && !begins_with_one_of(path, inside)) return 0;
  if (logged + strlen(path) + 16 < LOG) logged += sprintf(log_ + logged, "%s %s\n", kind, path);
  return ++calls == at || at < 0 ? number : 0;
}

void law_paths(const char *not_counted, const char *but_counted) {
  snprintf(outside, PATHS, "%s", not_counted);
  snprintf(inside, PATHS, "%s", but_counted);
}

void law_arm(int call, int what) {
  armed = 1, calls = 0, at = call, number = what, logged = 0, log_[0] = 0;
}

const char *law_disarm(void) {
  armed = 0;
  return log_;
}

#define REAL(name) ({ if (!real) real = dlsym(RTLD_NEXT, name); real; })
#define FAILS(kind, fd, path, value)              \
  int what = happens(kind, fd, path);             \
  if (what > 0) return errno = what, (value)
#define MODE(flags)                               \
  int mode = 0;                                   \
  if ((flags) & (O_CREAT | O_TMPFILE)) {          \
    va_list more;                                 \
    va_start(more, flags);                        \
    mode = va_arg(more, int);                     \
    va_end(more);                                 \
  }

#define OPEN(name)                                                                        \
  int name(const char *path, int flags, ...) {                                            \
    static int (*real)(const char *, int, ...);                                           \
    MODE(flags)                                                                           \
    FAILS("open", AT_FDCWD, path, -1);                                                    \
    return REAL(#name)(path, flags, mode);                                                \
  }
#define OPENAT(name)                                                                      \
  int name(int fd, const char *path, int flags, ...) {                                    \
    static int (*real)(int, const char *, int, ...);                                      \
    MODE(flags)                                                                           \
    FAILS("open", fd, path, -1);                                                          \
    return REAL(#name)(fd, path, flags, mode);                                            \
  }
#define STAT(name, type)                                                                  \
  int name(const char *path, type *into) {                                                \
    static int (*real)(const char *, type *);                                             \
    FAILS("stat", AT_FDCWD, path, -1);                                                    \
    return REAL(#name)(path, into);                                                       \
  }
#define FSTAT(name, type)                                                                 \
  int name(int fd, type *into) {                                                          \
    static int (*real)(int, type *);                                                      \
    FAILS("stat", fd, NULL, -1);                                                          \
    return REAL(#name)(fd, into);                                                         \
  }
#define FSTATAT(name, type)                                                               \
  int name(int fd, const char *path, type *into, int flags) {                             \
    static int (*real)(int, const char *, type *, int);                                   \
    FAILS("stat", fd, path, -1);                                                          \
    return REAL(#name)(fd, path, into, flags);                                            \
  }
#define READDIR(name, type)                                                               \
  type *name(DIR *directory) {                                                            \
    static type *(*real)(DIR *);                                                          \
    FAILS("list", dirfd(directory), NULL, NULL);                                          \
    return REAL(#name)(directory);                                                        \
  }
#define PREAD(name, offset_type)                                                          \
  ssize_t name(int fd, void *into, size_t size, offset_type offset) {                     \
    static ssize_t (*real)(int, void *, size_t, offset_type);                             \
    FAILS("read", fd, NULL, -1);                                                          \
    return REAL(#name)(fd, into, cut(what, size), offset);                                \
  }
#define MMAP(name, offset_type)                                                           \
  void *name(void *place, size_t size, int access, int flags, int fd, offset_type offset) { \
    static void *(*real)(void *, size_t, int, int, int, offset_type);                     \
    int what = fd < 0 ? 0 : happens("mmap", fd, NULL);                                    \
    if (what > 0) return errno = what, MAP_FAILED;                                        \
    return REAL(#name)(place, size, access, flags, fd, offset);                           \
  }

/* -1: half of it comes; -2: the file seems to end here. */
static size_t cut(int what, size_t size) { return what == -1 ? (size + 1) / 2 : what == -2 ? 0 : size; }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)
FSTATAT(fstatat, struct stat)
FSTATAT(fstatat64, struct stat64)
READDIR(readdir, struct dirent)
READDIR(readdir64, struct dirent64)
PREAD(pread, off_t)
PREAD(pread64, off64_t)
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *into) {
  static int (*real)(int, const char *, int, unsigned, struct statx *);
  FAILS("stat", fd, path, -1);
  return REAL("statx")(fd, path, flags, mask, into);
}

ssize_t read(int fd, void *into, size_t size) {
  static ssize_t (*real)(int, void *, size_t);
  FAILS("read", fd, NULL, -1);
  return REAL("read")(fd, into, cut(what, size));
}

DIR *opendir(const char *path) {
  static DIR *(*real)(const char *);
  FAILS("open", AT_FDCWD, path, NULL);
  return REAL("opendir")(path);
}

DIR *fdopendir(int fd) {
  static DIR *(*real)(int);
  FAILS("list", fd, NULL, NULL);
  return REAL("fdopendir")(fd);
}

ssize_t readlink(const char *path, char *into, size_t size) {
  static ssize_t (*real)(const char *, char *, size_t);
  FAILS("readlink", AT_FDCWD, path, -1);
  return REAL("readlink")(path, into, size);
}

ssize_t readlinkat(int fd, const char *path, char *into, size_t size) {
  static ssize_t (*real)(int, const char *, char *, size_t);
  FAILS("readlink", fd, path, -1);
  return REAL("readlinkat")(fd, path, into, size);
}

int access(const char *path, int mode) {
  static int (*real)(const char *, int);
  FAILS("access", AT_FDCWD, path, -1);
  return REAL("access")(path, mode);
}

int faccessat(int fd, const char *path, int mode, int flags) {
  static int (*real)(int, const char *, int, int);
  FAILS("access", fd, path, -1);
  return REAL("faccessat")(fd, path, mode, flags);
}
