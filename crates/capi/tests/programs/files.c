/*
 * Checks the functions of tenon.h on a volume: files VOLUME NAMING [OPTION...].
 * NAMING is "path" or "inode".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <tenon.h>

#include "check.h"

static tenon_file opened(tenon_volume volume, const char *path, int flags) {
    tenon_file file = tenon_open(volume, path, flags, 0640);
    if (file < 0) {
        fprintf(stderr, "%s: %s\n", path, tenon_last_error());
        exit(1);
    }
    return file;
}

static void content(tenon_volume volume) {
    char buffer[64] = {0};
    struct tenon_stat stat;
    OK(tenon_mkdir(volume, "dir", 0750));
    IS(tenon_mkdir(volume, "dir", 0750), -EEXIST);
    tenon_file file = opened(volume, "/dir/../dir/./file", O_RDWR | O_CREAT | O_EXCL);
    IS(tenon_pwrite(file, "0123456789", 10, 0), 10);
    IS(tenon_pwrite(file, "abc", 3, 5), 3);
    IS(tenon_pread(file, buffer, sizeof buffer, 0), 10);
    TRUE(memcmp(buffer, "01234abc89", 10) == 0);
    IS(tenon_pread(file, buffer, 4, 8), 2);
    IS(tenon_pread(file, buffer, 4, 100), 0);
    OK(tenon_fsync(file));
    OK(tenon_ftruncate(file, 20));
    OK(tenon_fstat(file, &stat));
    TRUE(stat.size == 20 && S_ISREG(stat.mode) && (stat.mode & 07777) == 0640);
    TRUE(stat.uid == geteuid() && stat.gid == getegid() && stat.mtime_ns > 0);
    OK(tenon_close(file));
    IS(tenon_close(file), -EBADF);
    IS(tenon_pread(file, buffer, 1, 0), -EBADF);
    IS(tenon_pwrite(file, buffer, 1, 0), -EBADF);
    IS(tenon_open(volume, "dir/file", O_RDWR | O_CREAT | O_EXCL, 0), -EEXIST);
    IS(tenon_open(volume, "dir", O_RDONLY, 0), -EISDIR);
    IS(tenon_open(volume, "dir/none", O_RDONLY, 0), -ENOENT);
    TRUE(strstr(tenon_last_error(), "dir/none") != NULL);
    IS(tenon_open(volume, "dir/file/x", O_RDONLY, 0), -ENOTDIR);
    IS(tenon_open(volume, "dir/x", O_RDONLY | O_PATH, 0), -EINVAL);

    file = opened(volume, "dir/file", O_WRONLY | O_APPEND);
    IS(tenon_pwrite(file, "end", 3, 0), 3);
    IS(tenon_pread(file, buffer, 1, 0), -EBADF);
    OK(tenon_close(file));
    file = opened(volume, "dir/file", O_RDONLY);
    IS(tenon_pread(file, buffer, sizeof buffer, 0), 23);
    TRUE(memcmp(buffer + 10, "\0\0\0\0\0\0\0\0\0\0end", 13) == 0);
    IS(tenon_pwrite(file, buffer, 1, 0), -EBADF);
    IS(tenon_ftruncate(file, 0), -EBADF);
    OK(tenon_close(file));
    OK(tenon_truncate(volume, "dir/file", 4));
    OK(tenon_stat(volume, "dir/file", &stat));
    TRUE(stat.size == 4);

    /* More than one piece, at an odd offset. */
    size_t size = (20u << 20) + 1;
    unsigned char *large = malloc(size), *again = malloc(size);
    TRUE(large != NULL && again != NULL);
    for (size_t i = 0; i < size; i++)
        large[i] = (unsigned char)(i * 7 + i / 1000);
    file = opened(volume, "large", O_RDWR | O_CREAT);
    IS(tenon_pwrite(file, large, size, 3), (int64_t)size);
    OK(tenon_close(file));
    file = opened(volume, "large", O_RDONLY);
    IS(tenon_pread(file, again, size, 3), (int64_t)size);
    TRUE(memcmp(large, again, size) == 0);
    OK(tenon_close(file));
    OK(tenon_unlink(volume, "large"));
    free(large);
    free(again);
}

static void attributes(tenon_volume volume, int is_by_inode) {
    char buffer[64] = {0};
    struct tenon_stat stat;
    struct tenon_statvfs sizes;
    OK(tenon_chmod(volume, "dir/file", 0600));
    OK(tenon_utimens(volume, "dir/file", TENON_TIME_KEEP, INT64_C(1000000000000000001)));
    OK(tenon_stat(volume, "dir/file", &stat));
    TRUE((stat.mode & 07777) == 0600 && stat.mtime_ns == INT64_C(1000000000000000001));
    OK(tenon_chown(volume, "dir/file", TENON_KEEP_ID, 77));
    OK(tenon_stat(volume, "dir/file", &stat));
    TRUE(stat.uid == geteuid() && stat.gid == 77);

    OK(tenon_setxattr(volume, "dir/file", "user.color", "red", 3, XATTR_CREATE));
    IS(tenon_setxattr(volume, "dir/file", "user.color", "red", 3, XATTR_CREATE), -EEXIST);
    IS(tenon_getxattr(volume, "dir/file", "user.color", NULL, 0), 3);
    IS(tenon_getxattr(volume, "dir/file", "user.color", buffer, 2), -ERANGE);
    IS(tenon_getxattr(volume, "dir/file", "user.color", buffer, sizeof buffer), 3);
    TRUE(memcmp(buffer, "red", 3) == 0);
    int64_t listed = tenon_listxattr(volume, "dir/file", buffer, sizeof buffer);
    TRUE(listed > 0 && memmem(buffer, (size_t)listed, "user.color", 11) != NULL);
    OK(tenon_removexattr(volume, "dir/file", "user.color"));
    IS(tenon_getxattr(volume, "dir/file", "user.color", NULL, 0), -ENODATA);

    OK(tenon_symlink(volume, "/dir/file", "dir/link"));
    IS(tenon_readlink(volume, "dir/link", buffer, sizeof buffer), 9);
    OK(tenon_lstat(volume, "dir/link", &stat));
    TRUE(S_ISLNK(stat.mode));
    OK(tenon_stat(volume, "dir/link", &stat));
    TRUE(S_ISREG(stat.mode) && stat.size == 4);
    tenon_file file = opened(volume, "dir/link", O_RDONLY | O_CREAT);
    OK(tenon_close(file));
    OK(tenon_statvfs(volume, &sizes));
    TRUE(sizes.block_size > 0 && sizes.blocks > 0 && sizes.name_max == 255);
    if (is_by_inode) {
        OK(tenon_link(volume, "dir/file", "dir/second"));
        OK(tenon_stat(volume, "dir/second", &stat));
        TRUE(stat.nlink == 2);
        OK(tenon_unlink(volume, "dir/second"));
    }
}

static int count(tenon_volume volume, const char *path) {
    struct tenon_dirent entry;
    int entries = 0, more;
    tenon_dir dir = tenon_opendir(volume, path);
    TRUE(dir > 0);
    while ((more = tenon_readdir(dir, &entry)) == 1) {
        TRUE(entry.name[0] != '\0' && strcmp(entry.name, ".") != 0 && entry.stat.ino != 0);
        entries++;
    }
    OK(more);
    OK(tenon_readdir(dir, &entry));
    OK(tenon_closedir(dir));
    IS(tenon_readdir(dir, &entry), -EBADF);
    IS(tenon_closedir(dir), -EBADF);
    return entries;
}

static void names(tenon_volume volume) {
    struct tenon_stat stat;
    OK(tenon_mkdir(volume, "many", 0755));
    for (int i = 0; i < 600; i++) {
        char path[32];
        snprintf(path, sizeof path, "many/%d", i);
        OK(tenon_close(opened(volume, path, O_WRONLY | O_CREAT)));
    }
    IS(count(volume, "many"), 600);
    IS(tenon_opendir(volume, "many/1"), -ENOTDIR);
    OK(tenon_rename(volume, "many/1", "dir/moved", 0));
    IS(tenon_stat(volume, "many/1", &stat), -ENOENT);
    IS(tenon_rename(volume, "many/2", "dir/moved", 1 /* RENAME_NOREPLACE */), -EEXIST);
    OK(tenon_rename(volume, "dir", "many/dir", 0));
    OK(tenon_stat(volume, "many/dir/moved", &stat));
    IS(tenon_rmdir(volume, "many"), -ENOTEMPTY);
    IS(tenon_unlink(volume, "many/dir"), -EISDIR);
    OK(tenon_rename(volume, "many/dir", "dir", 0));
    OK(tenon_unlink(volume, "dir/moved"));
    OK(tenon_mkdir(volume, "empty", 0755));
    OK(tenon_rmdir(volume, "empty"));
    IS(tenon_rmdir(volume, "empty"), -ENOENT);
    IS(tenon_mkdir(volume, "/", 0755), -EINVAL);
}

static void wrong_arguments(tenon_volume volume) {
    struct tenon_stat stat;
    const char *const unknown[] = {"no-such-option", NULL};
    IS(tenon_stat(volume, NULL, &stat), -EFAULT);
    IS(tenon_stat(volume, "dir", NULL), -EFAULT);
    IS(tenon_stat(0, "dir", &stat), -EBADF);
    IS(tenon_stat(-1, "dir", &stat), -EBADF);
    IS(tenon_stat(INT64_MAX, "dir", &stat), -EBADF);
    IS(tenon_volume_open(NULL, NULL), -EFAULT);
    IS(tenon_volume_open("nonsense://x", NULL), -EINVAL);
    IS(tenon_volume_open("s3://bucket", unknown), -EINVAL);
    TRUE(strstr(tenon_last_error(), "no-such-option") != NULL);
    tenon_file file = opened(volume, "dir/file", O_RDWR);
    IS(tenon_pread(file, NULL, 1, 0), -EFAULT);
    IS(tenon_pread(file, NULL, 0, 0), 0);
    IS(tenon_pwrite(file, "x", 1, UINT64_MAX), -EFBIG);
    IS(tenon_pread(file, &stat, 1, UINT64_MAX), -EINVAL);
    /* Handles of another kind. */
    IS(tenon_stat(file, "dir", &stat), -EBADF);
    IS(tenon_closedir(file), -EBADF);
    IS(tenon_volume_close(file, 0), -EBADF);
    OK(tenon_close(file));
    IS(tenon_batch_discard(volume), -EINVAL);
    IS(tenon_batch_commit(volume, 0, NULL), -EINVAL);

    pid_t child = fork();
    if (child == 0)
        _exit(tenon_stat(volume, "dir", &stat) == -EBADF ? 0 : 1);
    int status = 1;
    TRUE(waitpid(child, &status, 0) == child && status == 0);
}

struct thread {
    pthread_t thread;
    tenon_volume volume;
    int number;
    int64_t refused; /* calls after the end of the volume */
};

/* Works until the volume is closed by another thread. */
static void *work_until_closed(void *argument) {
    struct thread *thread = argument;
    char path[32];
    for (int i = 0; thread->refused < 3; i++) {
        snprintf(path, sizeof path, "threads/%d-%d", thread->number, i % 10);
        tenon_file file = tenon_open(thread->volume, path, O_WRONLY | O_CREAT, 0644);
        int64_t written = file < 0 ? file : tenon_pwrite(file, path, sizeof path, 0);
        int closed = file < 0 ? (int)file : tenon_close(file);
        if (file == -EBADF || written == -EBADF || closed == -EBADF)
            thread->refused++;
        else
            TRUE(file > 0 && written == (int64_t)sizeof path && closed == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc >= 3);
    TRUE(tenon_last_error()[0] == '\0' && tenon_version()[0] != '\0');
    int is_by_inode = strcmp(argv[2], "inode") == 0;
    tenon_volume volume = tenon_volume_open(argv[1], (const char *const *)argv + 3);
    TRUE(volume > 0);
    content(volume);
    attributes(volume, is_by_inode);
    names(volume);
    wrong_arguments(volume);
    OK(tenon_volume_sync(volume));

    struct thread threads[4] = {0};
    OK(tenon_mkdir(volume, "threads", 0755));
    tenon_file left = opened(volume, "left", O_WRONLY | O_CREAT);
    IS(tenon_pwrite(left, "stored", 6, 0), 6);
    tenon_dir dir = tenon_opendir(volume, "/");
    for (int i = 0; i < 4; i++) {
        threads[i].volume = volume;
        threads[i].number = i;
        TRUE(pthread_create(&threads[i].thread, NULL, work_until_closed, &threads[i]) == 0);
    }
    while (count(volume, "threads") < 20)
        ;
    OK(tenon_volume_close(volume, -1));
    for (int i = 0; i < 4; i++)
        TRUE(pthread_join(threads[i].thread, NULL) == 0);
    IS(tenon_volume_close(volume, -1), -EBADF);
    IS(tenon_close(left), -EBADF);
    IS(tenon_closedir(dir), -EBADF);

    /* The names and the content are there for the next one who opens it. */
    volume = tenon_volume_open(argv[1], (const char *const *)argv + 3);
    TRUE(volume > 0);
    char buffer[8] = {0};
    tenon_file file = opened(volume, "left", O_RDONLY);
    IS(tenon_pread(file, buffer, sizeof buffer, 0), 6);
    TRUE(strcmp(buffer, "stored") == 0);
    IS(count(volume, "threads") >= 20, 1);
    OK(tenon_volume_close(volume, -1));
    return 0;
}
