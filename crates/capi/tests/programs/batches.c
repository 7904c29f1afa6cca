/*
 * Checks batches: batches VOLUME STEP [OPTION...]. The steps are run one after
 * the other: "begin" dies with an open batch, "resume" goes on with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon.h>

#include "check.h"

static void write_file(tenon_volume volume, const char *path, const char *text) {
    tenon_file file = tenon_open(volume, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    TRUE(file > 0);
    IS(tenon_pwrite(file, text, strlen(text), 0), (int64_t)strlen(text));
    OK(tenon_close(file));
}

static int has_content(tenon_volume volume, const char *path, const char *text) {
    char buffer[64] = {0};
    tenon_file file = tenon_open(volume, path, O_RDONLY, 0);
    if (file < 0)
        return 0;
    TRUE(tenon_pread(file, buffer, sizeof buffer - 1, 0) >= 0);
    OK(tenon_close(file));
    return strcmp(buffer, text) == 0;
}

static void begin(tenon_volume volume) {
    struct tenon_stat stat;
    struct tenon_batch_progress progress;
    OK(tenon_mkdir(volume, "job", 0755));
    OK(tenon_mkdir(volume, "job/inner", 0755));
    write_file(volume, "job/before", "before");
    write_file(volume, "job/removed", "removed");
    IS(tenon_batch_begin(volume, "none"), -ENOENT);
    tenon_volume batch = tenon_batch_begin(volume, "job");
    TRUE(batch > 0);
    IS(tenon_batch_begin(volume, "job"), -EBUSY);
    IS(tenon_batch_begin(volume, "job/inner"), -EBUSY);
    IS(tenon_batch_begin(batch, "inner"), -EINVAL);
    TRUE(has_content(batch, "before", "before"));
    write_file(batch, "before", "changed");
    write_file(batch, "new", "new");
    OK(tenon_unlink(batch, "removed"));
    OK(tenon_mkdir(batch, "inner/deep", 0755));
    write_file(batch, "inner/deep/file", "deep");
    OK(tenon_rename(batch, "new", "../renamed", 0));
    OK(tenon_stat(batch, "/renamed", &stat));
    /* The volume has nothing of it. */
    TRUE(has_content(volume, "job/before", "before") && has_content(volume, "job/removed", "removed"));
    IS(tenon_stat(volume, "job/renamed", &stat), -ENOENT);
    IS(tenon_stat(volume, "renamed", &stat), -ENOENT);
    OK(tenon_batch_progress(batch, &progress));
    TRUE(progress.files == 2 && progress.directories == 1 && progress.renames == 1 && !progress.is_resumed);
    TRUE(progress.removed == 1 && progress.contents == 3 && progress.bytes == 14);
    OK(tenon_volume_sync(batch));
    fflush(stdout);
    kill(getpid(), SIGKILL);
}

/* Lists the refused changes "taken" and "second", makes the latter again, and leaves the former. */
static void check_refused(tenon_volume volume, const char *id) {
    struct tenon_refused_change taken, second, none;
    IS(tenon_batch_refused(volume, "no id", 0, &none), -EINVAL);
    IS(tenon_batch_refused(volume, "1", 0, &none), -ENOENT);
    IS(tenon_batch_refused(volume, id, 0, NULL), -EFAULT);
    IS(tenon_batch_refused(volume, id, 0, &taken), 1);
    IS(tenon_batch_refused(volume, id, taken.index + 1, &second), 1);
    IS(tenon_batch_refused(volume, id, second.index + 1, &none), 0);
    TRUE(strcmp(taken.change, "create job/taken") == 0 && strcmp(second.change, "create job/second") == 0);
    TRUE(strstr(taken.reason, "exists") != NULL);
    TRUE(strncmp(second.kept_as, "job/second.batch-", 17) == 0);
    TRUE(has_content(volume, second.kept_as, "by the batch, too"));
    /* The name is still taken. */
    IS(tenon_batch_retry(volume, id, second.index), -EEXIST);
    TRUE(strstr(tenon_last_error(), "refused again") != NULL);
    OK(tenon_unlink(volume, "job/second"));
    OK(tenon_batch_retry(volume, id, second.index));
    TRUE(has_content(volume, "job/second", "by the batch, too"));
    IS(tenon_batch_retry(volume, id, second.index), -ENOENT);
    OK(tenon_batch_forget(volume, id, taken.index));
    IS(tenon_batch_forget(volume, id, taken.index), -ENOENT);
    IS(tenon_batch_refused(volume, id, 0, &none), 0);
    TRUE(has_content(volume, taken.kept_as, "by the batch"));
}

static void resume(tenon_volume volume) {
    struct tenon_stat stat;
    struct tenon_batch_progress progress;
    struct tenon_batch_result result;
    tenon_volume batch = tenon_batch_begin(volume, "job");
    TRUE(batch > 0);
    OK(tenon_batch_progress(batch, &progress));
    TRUE(progress.is_resumed && progress.files == 2);
    TRUE(has_content(batch, "renamed", "new"));
    /* Closed and begun again, with a file that is closed by that. */
    tenon_file file = tenon_open(batch, "late", O_WRONLY | O_CREAT, 0644);
    IS(tenon_pwrite(file, "late", 4, 0), 4);
    OK(tenon_volume_close(batch, -1));
    IS(tenon_close(file), -EBADF);
    IS(tenon_stat(batch, "late", &stat), -EBADF);
    batch = tenon_batch_begin(volume, "job");
    TRUE(batch > 0 && has_content(batch, "late", "late"));

    /* What collides is refused, and nothing is lost. */
    write_file(volume, "job/taken", "by the volume");
    write_file(batch, "taken", "by the batch");
    write_file(volume, "job/second", "by the volume");
    write_file(batch, "second", "by the batch, too");
    file = tenon_open(batch, "late", O_RDONLY, 0);
    IS(tenon_batch_commit(batch, -1, &result), -EBUSY);
    OK(tenon_close(file));
    OK(tenon_batch_commit(batch, -1, &result));
    TRUE(result.merged > 5 && result.refused == 2 && strcmp(result.id, progress.id) == 0);
    IS(tenon_batch_commit(batch, -1, &result), -EBADF);
    IS(tenon_batch_progress(batch, &progress), -EBADF);
    IS(tenon_stat(batch, "late", &stat), -EBADF);
    TRUE(has_content(volume, "job/before", "changed") && has_content(volume, "job/renamed", "new"));
    TRUE(has_content(volume, "job/late", "late") && has_content(volume, "job/inner/deep/file", "deep"));
    TRUE(has_content(volume, "job/taken", "by the volume"));
    IS(tenon_stat(volume, "job/removed", &stat), -ENOENT);
    check_refused(volume, result.id);

    tenon_volume dropped = tenon_batch_begin(volume, "job/inner");
    TRUE(dropped > 0);
    write_file(dropped, "dropped", "dropped");
    file = tenon_open(dropped, "dropped", O_RDONLY, 0);
    OK(tenon_batch_discard(dropped));
    IS(tenon_close(file), -EBADF);
    IS(tenon_batch_discard(dropped), -EBADF);
    IS(tenon_stat(volume, "job/inner/dropped", &stat), -ENOENT);

    /* The end of the volume closes its batches. */
    batch = tenon_batch_begin(volume, "job/inner");
    TRUE(batch > 0);
    write_file(batch, "kept", "kept");
    OK(tenon_volume_close(volume, -1));
    IS(tenon_stat(batch, "kept", &stat), -EBADF);
    IS(tenon_batch_commit(batch, -1, NULL), -EBADF);
}

int main(int argc, char **argv) {
    TRUE(argc >= 3);
    tenon_volume volume = tenon_volume_open(argv[1], (const char *const *)argv + 3);
    if (volume < 0) {
        fprintf(stderr, "%s\n", tenon_last_error());
        return volume == -EBUSY ? 16 : 1;
    }
    if (strcmp(argv[2], "begin") == 0)
        begin(volume);
    else if (strcmp(argv[2], "resume") == 0)
        resume(volume);
    else
        IS(tenon_batch_begin(volume, "/"), -EOPNOTSUPP);
    return 0;
}
