/* LD_PRELOAD: a wall clock that can be set back. TFDIST_FAULTS_CLOCK is a file with a 64-bit number of seconds, which is
   added to every reading of the real-time clock by a process that has loaded this library. The monotonic clock, times
   of files, and the kernel's own clock stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t nothing;
static volatile int64_t *shift = &nothing;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("TFDIST_FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) shift = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec reading;
    clock_gettime(CLOCK_REALTIME, &reading);
    if (now) *now = reading.tv_sec;
    return reading.tv_sec;
}
