/*
 * tenon-job: makes many files in a directory of a volume, by several threads.
 *
 *     tenon-job VOLUME DIR FILES [OPTION...]
 *
 * Works in a batch if the volume can have one: the files are private, and cost
 * no request each, until the batch is committed. Options are those of
 * tenon_volume_open(), like endpoint-url=http://127.0.0.1:9000.
 *
 *     gcc -Wall -Wextra tenon-job.c $(pkg-config --cflags --libs tenon) -o tenon-job
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tenon.h>

enum { THREADS = 4, FILE_BYTES = 2000, FILES_PER_DIRECTORY = 1000 };

struct worker {
    pthread_t thread;
    tenon_volume volume;
    const char *dir; /* with a '/' at its end; empty: the root of the volume or batch */
    int first;  /* number of the first file; the next ones are THREADS apart */
    int files;  /* number of all files */
    int failed; /* negative errno of the first failure, or 0 */
    char error[256];
};

/* Keeps a failure with its text, which belongs to this thread. */
static int fail(struct worker *worker, int64_t error) {
    worker->failed = (int)error;
    snprintf(worker->error, sizeof worker->error, "%s", tenon_last_error());
    return -1;
}

static int make_file(struct worker *worker, int number) {
    char path[512], text[FILE_BYTES];
    snprintf(path, sizeof path, "%sstep-%04d/file-%06d", worker->dir, number / FILES_PER_DIRECTORY, number);
    memset(text, 'a' + number % 26, sizeof text);

    tenon_file file = tenon_open(worker->volume, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        return fail(worker, file);
    int64_t written = tenon_pwrite(file, text, sizeof text, 0);
    int closed = tenon_close(file);
    if (written < 0 || closed < 0)
        return fail(worker, written < 0 ? written : closed);
    return 0;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int number = worker->first; number < worker->files; number += THREADS)
        if (make_file(worker, number) < 0)
            break;
    return NULL;
}

static int make_files(tenon_volume volume, const char *dir, int files) {
    struct worker workers[THREADS] = {0};
    int failed = 0;
    for (int step = 0; step * FILES_PER_DIRECTORY < files; step++) {
        char path[512];
        snprintf(path, sizeof path, "%sstep-%04d", dir, step);
        int made = tenon_mkdir(volume, path, 0755);
        if (made < 0 && made != -EEXIST) {
            fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
            return -1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i].volume = volume;
        workers[i].dir = dir;
        workers[i].first = i;
        workers[i].files = files;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failed < 0) {
            fprintf(stderr, "tenon-job: %s\n", workers[i].error);
            failed = -1;
        }
    }
    return failed;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Works in a batch, and commits it. Returns 0, or a negative number. */
static int work_in_batch(tenon_volume batch, int files) {
    struct tenon_batch_progress progress;
    struct tenon_batch_result result;
    double begun = seconds();
    if (make_files(batch, "", files) < 0)
        return -1; /* The batch stays open: the next run continues it. */
    double made = seconds();
    if (tenon_batch_progress(batch, &progress) == 0)
        printf("%" PRIu64 " files, %" PRIu64 " bytes, %.0f files/s\n", progress.files, progress.bytes,
               (double)files / (made - begun));
    if (tenon_batch_commit(batch, -1, &result) < 0) {
        fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
        return -1;
    }
    printf("batch %s: %" PRIu64 " changes merged, %" PRIu64 " refused, %.2f s\n", result.id, result.merged,
           result.refused, seconds() - made);
    return 0;
}

static int work_without_batch(tenon_volume volume, const char *dir, int files) {
    char prefix[256];
    double begun = seconds();
    snprintf(prefix, sizeof prefix, "%s/", dir);
    if (make_files(volume, prefix, files) < 0)
        return -1;
    printf("%d files without a batch, %.0f files/s\n", files, (double)files / (seconds() - begun));
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: tenon-job VOLUME DIR FILES [OPTION...]\n");
        return 2;
    }
    int files = atoi(argv[3]);
    /* argv ends with NULL, as the list of options must. */
    tenon_volume volume = tenon_volume_open(argv[1], (const char *const *)argv + 4);
    if (volume < 0) {
        fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
        return 1;
    }
    int outcome = tenon_mkdir(volume, argv[2], 0755);
    if (outcome == 0 || outcome == -EEXIST) {
        tenon_volume batch = tenon_batch_begin(volume, argv[2]);
        if (batch > 0)
            outcome = work_in_batch(batch, files);
        else if (batch == -EOPNOTSUPP)
            outcome = work_without_batch(volume, argv[2], files);
        else
            outcome = (int)batch;
        if (batch < 0 && batch != -EOPNOTSUPP)
            fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
    } else {
        fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
    }
    if (tenon_volume_close(volume, 60000) < 0) {
        fprintf(stderr, "tenon-job: %s\n", tenon_last_error());
        outcome = -1;
    }
    return outcome < 0 ? 1 : 0;
}
