/* A job of MPI ranks that write many files through MPI-IO, in steps. Names, sizes and contents depend on the number of a file only.
 *
 * mpi-job DIR FILES STEPS FIRST [KILLED]: makes the steps from FIRST (of 0 to STEPS - 1), each in a directory DIR/step-NN. In the middle of
 * step KILLED, one rank kills itself with a file half written. */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_MAX = 6 << 10, SIZE_MAX_BYTES = 256 << 10, RECORD = 64 };

static char bytes[SIZE_MAX_BYTES];

static void fail(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "mpi-job: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const char *what, int code)
{
    if (code != MPI_SUCCESS)
        fail(what, code);
}

/* The generator splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Fills `bytes` with the content of a file and returns its size: one of 25 files has up to 256 KiB, the others up to 6 KiB. */
static int make_content(int number)
{
    uint64_t state = number;
    int limit = next(&state) % 25 == 0 ? SIZE_MAX_BYTES : SMALL_MAX;
    int size = next(&state) % (limit + 1);
    for (int at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = next(&state);
        memcpy(bytes + at, &word, sizeof word);
    }
    return size;
}

static MPI_File open_file(MPI_Comm ranks, const char *path, MPI_Offset size)
{
    MPI_File file;
    check(path, MPI_File_open(ranks, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    check(path, MPI_File_set_size(file, size));
    return file;
}

static void write_file(const char *dir, int number, int dies)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/file-%06d", dir, number);
    int size = make_content(number);
    MPI_File file = open_file(MPI_COMM_SELF, path, size);
    check(path, MPI_File_write_at(file, 0, bytes, dies ? size / 2 : size, MPI_BYTE, MPI_STATUS_IGNORE));
    if (dies)
        kill(getpid(), SIGKILL);
    check(path, MPI_File_close(&file));
}

/* Writes the list of a step's files by all ranks together into one file, each rank a contiguous part of it. */
static void write_list(const char *dir, int step, int first, int end, int rank, int ranks)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/list-%02d", dir, step);
    int from = first + (int)((int64_t)(end - first) * rank / ranks);
    int to = first + (int)((int64_t)(end - first) * (rank + 1) / ranks);
    char *records = calloc(to - from + 1, RECORD + 1);
    for (int number = from; number < to; number++)
        snprintf(records + (number - from) * RECORD, RECORD + 1, "file-%06d %*d\n", number, RECORD - 13, make_content(number));
    MPI_File file = open_file(MPI_COMM_WORLD, path, (MPI_Offset)(end - first) * RECORD);
    check(path, MPI_File_write_at_all(file, (MPI_Offset)(from - first) * RECORD, records, (to - from) * RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    check(path, MPI_File_close(&file));
    free(records);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5) {
        fprintf(stderr, "usage: mpi-job DIR FILES STEPS FIRST [KILLED]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int files = atoi(argv[2]), steps = atoi(argv[3]), killed = argc > 5 ? atoi(argv[5]) : -1;
    for (int step = atoi(argv[4]); step < steps; step++) {
        int first = (int)((int64_t)files * step / steps), end = (int)((int64_t)files * (step + 1) / steps);
        char dir[4000];
        snprintf(dir, sizeof dir, "%s/step-%02d", argv[1], step);
        if (rank == 0 && mkdir(dir, 0755) != 0 && errno != EEXIST) {
            perror(dir);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int number = first + rank; number < end; number += ranks)
            write_file(dir, number, step == killed && rank == ranks / 2 && number >= (first + end) / 2);
        write_list(dir, step, first, end, rank, ranks);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
