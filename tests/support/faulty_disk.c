/* A disk that fails: preloaded into a process (LD_PRELOAD), it counts the writes, syncs and truncations of the files of
 * a database, and lets one of them fail or kills the process there. It can also record them, for a model of power loss.
 *
 * FAULTY_DISK         a file of 8 numbers (struct control), which the test shares with the process
 * FAULTY_DISK_RECORD  a file that gets one record (struct record, then its bytes) per call that had an effect
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    uint64_t armed;    /* 0: calls are neither counted nor disturbed */
    uint64_t calls;    /* how many there were since it was armed */
    uint64_t first;    /* the number of the first call that fails; 0: none */
    uint64_t last;     /* the number of the last call that fails */
    uint64_t fault;    /* enum fault */
    uint64_t number;   /* errno of the failing calls */
    uint64_t faults;   /* how many calls have failed */
    uint64_t only_syncs; /* 1: other calls are neither counted nor disturbed */
};

enum fault { REFUSED = 1, HALF_DONE, DONE_BUT_FAILED, KILLED_BEFORE, KILLED_AFTER };
enum kind { WRITE = 1, SYNC, TRUNCATE, PRINT, FAILED_SYNC };

struct record {
    uint64_t kind, file, offset, length;
};

static struct control *control;
static int record_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    const char *path = getenv("FAULTY_DISK");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd >= 0) {
        void *memory = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        control = memory == MAP_FAILED ? NULL : memory;
        close(fd);
    }
    path = getenv("FAULTY_DISK_RECORD");
    if (path) record_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* 1: the database, 2: its log, 3: its shared memory, 4: the directory; 0: another file. */
static int file_of(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (!name) return 0;
    if (!strcmp(name, "/forewarn.db")) return 1;
    if (!strcmp(name, "/forewarn.db-wal")) return 2;
    if (!strcmp(name, "/forewarn.db-shm")) return 3;
    const char *directory = getenv("FAULTY_DISK_DIRECTORY");
    return directory && !strcmp(path, directory) ? 4 : 0;
}

static void record(enum kind kind, int file, off_t offset, const void *bytes, size_t length) {
    if (record_fd < 0) return;
    struct record head = {kind, file, offset, length};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, bytes ? length : 0}};
    if (writev(record_fd, parts, 2) < 0) abort();
}

/* Returns how the next call on a file of the database ends; 0: normally. */
static enum fault next_fault(int file, int is_sync) {
    if (!control || file == 0 || file == 4 || !control->armed) return 0;
    if (control->only_syncs && !is_sync) return 0;
    uint64_t call = __atomic_add_fetch(&control->calls, 1, __ATOMIC_SEQ_CST);
    if (control->first == 0 || call < control->first || call > control->last) return 0;
    __atomic_add_fetch(&control->faults, 1, __ATOMIC_SEQ_CST);
    if (control->fault == KILLED_BEFORE) kill(getpid(), SIGKILL);
    return control->fault;
}

static ssize_t end(enum fault fault, ssize_t result) {
    if (fault == KILLED_AFTER) kill(getpid(), SIGKILL);
    if (fault == 0) return result;
    errno = control->number;
    return -1;
}

static ssize_t do_write(int fd, const void *bytes, size_t length, off_t offset, int has_offset) {
    int file = file_of(fd);
    if (file == 0 && fd != STDOUT_FILENO)
        return has_offset ? real_pwrite(fd, bytes, length, offset) : real_write(fd, bytes, length);
    enum fault fault = next_fault(file, 0);
    if (fault == REFUSED) return end(fault, -1);
    size_t part = fault == HALF_DONE ? length / 2 : length;
    pthread_mutex_lock(&lock);
    if (!has_offset && file) offset = lseek(fd, 0, SEEK_CUR);
    ssize_t written = has_offset ? real_pwrite(fd, bytes, part, offset) : real_write(fd, bytes, part);
    if (written > 0) record(file ? WRITE : PRINT, file, offset, bytes, written);
    pthread_mutex_unlock(&lock);
    return end(fault, written);
}

static int do_sync(int fd, int (*sync)(int)) {
    int file = file_of(fd);
    if (file == 0) return sync(fd);
    enum fault fault = next_fault(file, 1);
    pthread_mutex_lock(&lock);
    int result = fault == REFUSED || fault == HALF_DONE ? -1 : sync(fd);
    record(result == 0 ? SYNC : FAILED_SYNC, file, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return end(fault, result);
}

static int do_truncate(int fd, off_t length) {
    int file = file_of(fd);
    if (file == 0) return real_ftruncate(fd, length);
    enum fault fault = next_fault(file, 0);
    if (fault == REFUSED || fault == HALF_DONE) return end(fault, -1);
    pthread_mutex_lock(&lock);
    int result = real_ftruncate(fd, length);
    if (result == 0) record(TRUNCATE, file, length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return end(fault, result);
}

ssize_t write(int fd, const void *bytes, size_t length) { return do_write(fd, bytes, length, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return do_write(fd, bytes, length, offset, 1); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    return do_write(fd, bytes, length, offset, 1);
}
int fsync(int fd) { return do_sync(fd, real_fsync); }
int fdatasync(int fd) { return do_sync(fd, real_fdatasync); }
int ftruncate(int fd, off_t length) { return do_truncate(fd, length); }
int ftruncate64(int fd, off64_t length) { return do_truncate(fd, length); }
