/* A wall clock that can be set without touching the machine's: preloaded into a process, it adds an
 * offset, in nanoseconds, to CLOCK_REALTIME. The offset is the first 8 bytes of the file that
 * TRILITHON_CLOCK_OFFSET names; all processes that map it see a step at the same moment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
/* Times below are no wall clock's: condition variables may wait by the steady clock. */
#define EPOCH_S 1000000000LL

static volatile int64_t *shared;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_sem)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  real_wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real_wait) {
    real_wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  }
  real_sem = dlsym(RTLD_NEXT, "sem_timedwait");
  const char *path = getenv("TRILITHON_CLOCK_OFFSET");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    shared = page == MAP_FAILED ? NULL : page;
    close(file);
  }
}

static void shift(struct timespec *at, int64_t by) {
  int64_t ns = at->tv_sec * SECOND + at->tv_nsec + by;
  at->tv_sec = ns / SECOND;
  at->tv_nsec = ns % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  /* Other libraries may ask before this one has begun. */
  int status = real_gettime ? real_gettime(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
  if (status == 0 && shared && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    shift(at, *shared);
  }
  return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int status = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return status;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) {
    *at = now.tv_sec;
  }
  return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

/* The kernel's clock is not set: a deadline by the wall clock is told to it without the offset. */
static struct timespec of_kernel(const struct timespec *deadline) {
  struct timespec at = *deadline;
  if (shared && at.tv_sec > EPOCH_S) {
    shift(&at, -*shared);
  }
  return at;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
  struct timespec at = of_kernel(deadline);
  return real_wait(cond, mutex, &at);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
  struct timespec at = of_kernel(deadline);
  return real_sem(semaphore, &at);
}
