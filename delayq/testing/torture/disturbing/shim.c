/* Between redis-server and the system: a clock that can be set, a disk that can be slow, failing or full, and a book of
   how far each file has been brought to the disk. Loaded with LD_PRELOAD; ruled through the file that DELAYQ_SHIM names,
   whose layout delayq/torture/shim.py shares. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FILES 256
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static volatile struct control {
  int64_t shift;       /* us, added to the time of day */
  int64_t sync_delay;  /* us, that bringing a file to the disk takes longer */
  int64_t sync_error;  /* errno with which that fails, 0 for none */
  int64_t write_error; /* errno with which half of every write to a file fails, 0 for none */
  int64_t sync_began, sync_ended; /* of the last one (us, monotonic) */
  struct { int64_t inode, size, began; } files[FILES]; /* bytes on the disk, by a sync begun then (us, monotonic) */
} *control;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("DELAYQ_SHIM");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  void *seen = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (seen == MAP_FAILED) abort();
  control = seen;
  close(file);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* its parent may be killed, and nothing is to be left behind */
}

int clock_gettime(clockid_t which, struct timespec *at) {
  static __typeof__(&clock_gettime) real;
  if (!real) real = REAL(clock_gettime);
  int result = real(which, at);
  if (!result && control && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
    int64_t ns = at->tv_nsec + control->shift % 1000000 * 1000 + 1000000000;
    at->tv_sec += control->shift / 1000000 + ns / 1000000000 - 1;
    at->tv_nsec = ns % 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

static void book(const struct stat *file, int64_t began) {
  pthread_mutex_lock(&lock);
  int at = 0;
  for (int i = 0; i < FILES; i++) {
    if (control->files[i].inode == (int64_t)file->st_ino) { at = i; break; }
    if (control->files[i].began < control->files[at].began) at = i; /* a free one, else the oldest */
  }
  control->files[at].size = file->st_size;
  control->files[at].began = began;
  control->files[at].inode = file->st_ino;
  pthread_mutex_unlock(&lock);
}

static int64_t monotonic(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int sync_with(int (*real)(int), int file) {
  struct stat before; /* what is written meanwhile may or may not reach the disk */
  int known = !fstat(file, &before) && S_ISREG(before.st_mode);
  int64_t began = control->sync_began = monotonic();
  if (control->sync_delay) usleep(control->sync_delay);
  int result = control->sync_error ? -1 : real(file);
  if (control->sync_error) errno = control->sync_error;
  if (!result && known) book(&before, began);
  control->sync_ended = monotonic();
  return result;
}

int fsync(int file) { return sync_with(REAL(fsync), file); }

int fdatasync(int file) { return sync_with(REAL(fdatasync), file); }

ssize_t write(int file, const void *bytes, size_t count) {
  static __typeof__(&write) real;
  struct stat about;
  if (!real) real = REAL(write);
  if (control && control->write_error && !fstat(file, &about) && S_ISREG(about.st_mode)) {
    if (count > 1) return real(file, bytes, count / 2); /* as a disk does that is full in the middle of it */
    errno = control->write_error;
    return -1;
  }
  return real(file, bytes, count);
}
