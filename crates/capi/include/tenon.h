/*
 * tenon.h: files and batches of Tenon volumes, without a mount.
 *
 * Link with -ltenon. docs/c.md shows how to use the library.
 *
 * Results. A function returns a negative errno if it fails, for example
 * -ENOENT, and tenon_last_error() has its text. It does not set errno. A
 * success is 0, or what the function says: a handle, or a number of bytes.
 * -EBADF: a handle is not open. -EFAULT: a pointer is NULL that must not be.
 * -EIO: the bucket does not answer, or another failure that the text names.
 * -EROFS: the volume was opened read-only. -EINVAL, -ENOENT, -ENOTDIR,
 * -ENAMETOOLONG, -ELOOP: as in open(2), for every path.
 *
 * Handles. Volumes, files and directories are positive numbers that are never
 * used twice: a handle that was closed gives -EBADF, and nothing else happens.
 *
 * Memory. The library keeps no pointer after a function has returned, and
 * returns no memory that must be freed.
 *
 * Paths. A path is relative to the root of its volume or batch, with or
 * without a leading '/'. It consists of bytes, not of characters. ".." does
 * not lead out of the volume or batch. Symbolic links are followed, also an
 * absolute one, which begins at that root.
 *
 * Permissions. What is created belongs to the effective user and group of the
 * process that opened the volume, with exactly the given mode: the umask is
 * not applied. Permissions are not checked: anyone with access to the bucket
 * may change all files.
 *
 * Threads. Every function can be called from any thread at any time, also for
 * the same handle. A function that ends a volume or batch waits for calls that
 * other threads make in it; later ones get -EBADF. A process that was forked
 * after tenon_volume_open() cannot use the library: all calls give -EBADF.
 * No function may be called from a signal handler.
 *
 * Errors inside of the library do not end the process: they are -EIO.
 */
#ifndef TENON_H
#define TENON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open volume, or a batch, which is used like a volume. */
typedef int64_t tenon_volume;

/* An open file. */
typedef int64_t tenon_file;

/* An open directory. */
typedef int64_t tenon_dir;

/* Attributes of a file. Times are nanoseconds since 1970. */
struct tenon_stat {
    uint64_t ino;
    uint64_t size;   /* bytes; of a symbolic link, the length of its target */
    uint64_t blocks; /* allocated units of 512 bytes */
    uint32_t mode;   /* type and permissions, as st_mode: S_ISREG(mode) */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev;
    uint32_t reserved;
    int64_t atime_ns;
    int64_t mtime_ns;
    int64_t ctime_ns;
    int64_t btime_ns; /* creation */
};

/* An entry of a directory. */
struct tenon_dirent {
    struct tenon_stat stat; /* of the entry itself, also of a symbolic link */
    char name[256];         /* ends with NUL */
};

/* Sizes of a volume. Without a quota and a known disk, they are large constants. */
struct tenon_statvfs {
    uint64_t block_size; /* bytes */
    uint64_t blocks;
    uint64_t blocks_free;
    uint64_t files;
    uint64_t files_free;
    uint64_t name_max; /* bytes of a name */
};

/* The result of a merged batch. */
struct tenon_batch_result {
    char id[24];      /* for `tenon batch conflicts` */
    uint64_t merged;  /* changes that were added to the volume */
    uint64_t refused; /* changes that were not, or under another name */
};

/* A change that the commit of a batch has refused. */
struct tenon_refused_change {
    uint64_t index;
    char change[1024];  /* text, cut if it is longer */
    char reason[256];   /* text, cut if it is longer */
    char kept_as[4096]; /* path in the volume of the file that keeps the bytes;
                           empty if there is none, or its path is longer */
};

/* What was done in a batch. The numbers only grow. */
struct tenon_batch_progress {
    char id[24];
    uint64_t changes;
    uint64_t files;       /* files, links and special files that were created */
    uint64_t directories; /* directories that were created */
    uint64_t removed;     /* names that were removed */
    uint64_t renames;
    uint64_t contents; /* contents of files that were stored */
    uint64_t bytes;    /* length of these contents */
    int64_t last_change_ns;
    uint32_t is_resumed; /* 1: tenon_batch_begin() continued an open batch; 0: it began a new one */
    uint32_t reserved;
};

/* Times for tenon_utimens(): KEEP leaves a time unchanged, NOW is the current time. */
#define TENON_TIME_KEEP INT64_MIN
#define TENON_TIME_NOW INT64_MAX

/* Id for tenon_chown() that leaves the user or group unchanged. */
#define TENON_KEEP_ID UINT32_MAX

/* ---- The library ---- */

/* Returns the version of the library, like "1.2.0". The text is never freed. */
const char *tenon_version(void);

/*
 * Returns the text of the last error of this thread: one line, without
 * secrets, and empty if no call of the thread has failed. It is valid until
 * the next call of the thread fails, or the thread ends.
 */
const char *tenon_last_error(void);

/* ---- Volumes ---- */

/*
 * Opens a volume, and returns its handle. `url` is that of `tenon mount`:
 * s3://bucket[/prefix], file:///dir, drive:///device, dirs:///dir, or the path
 * of a directory made by `tenon format`. `options` ends with NULL, and may be
 * NULL. Each option is a flag of `tenon mount` for volumes or object stores,
 * without hyphens at its beginning: "read-only", "endpoint-url=http://host:9000",
 * "memory-limit=256MiB". In addition "access-key-id=", "secret-access-key=" and
 * "session-token=" are an access key; without it, the environment and the AWS
 * files have one, as for `tenon mount`.
 *
 * -EINVAL: the URL or an option is wrong. -EBUSY: another process has the
 * volume open, and its names are on this machine only; use its mount.
 */
tenon_volume tenon_volume_open(const char *url, const char *const *options);

/*
 * Closes a volume, with its batches, files and directories, after everything
 * that was written is stored, for at most `timeout_ms` milliseconds (negative:
 * without a limit). Batches stay open in the volume: tenon_batch_begin()
 * continues them. For a batch, closes this batch alone. The handle is closed
 * also after an error. Close each volume before the process ends.
 *
 * -EIO: not everything was stored; the text says what.
 */
int tenon_volume_close(tenon_volume volume, int64_t timeout_ms);

/* Stores everything that was written, and makes content and names durable. */
int tenon_volume_sync(tenon_volume volume);

/* Writes the sizes of a volume to `result`. */
int tenon_statvfs(tenon_volume volume, struct tenon_statvfs *result);

/* ---- Files ---- */

/*
 * Opens a file, and returns its handle. `flags` are those of open(2):
 * O_RDONLY, O_WRONLY or O_RDWR, and O_CREAT, O_EXCL, O_TRUNC, O_APPEND.
 * `mode` is used for a file that is created; pass 0 without O_CREAT.
 *
 * -EEXIST, -EISDIR: as in open(2). -EINVAL: another flag.
 */
tenon_file tenon_open(tenon_volume volume, const char *path, int flags, uint32_t mode);

/*
 * Stores what was written, and closes the file, also if that fails. Other
 * clients see the new content after this, or after tenon_fsync().
 *
 * -ESTALE: another client has changed the file meanwhile, and the volume's
 * policy has preferred its content. -ENOSPC, -EDQUOT: no room.
 */
int tenon_close(tenon_file file);

/*
 * Reads up to `size` bytes at `offset`. Returns their number: fewer than
 * `size` at the end of the file, or if an error prevents the rest.
 */
int64_t tenon_pread(tenon_file file, void *buffer, size_t size, uint64_t offset);

/*
 * Writes `size` bytes at `offset`; with O_APPEND, at the end of the file.
 * Returns their number: fewer than `size` only if an error prevents the rest.
 * What is written is stored by tenon_close() or tenon_fsync().
 *
 * -EFBIG, -ENOSPC, -EDQUOT: as in pwrite(2).
 */
int64_t tenon_pwrite(tenon_file file, const void *data, size_t size, uint64_t offset);

/* Stores what was written to a file, and makes content and names durable. */
int tenon_fsync(tenon_file file);

/* Sets the length of an open file to `size` bytes. */
int tenon_ftruncate(tenon_file file, uint64_t size);

/* Writes the attributes of an open file to `result`. */
int tenon_fstat(tenon_file file, struct tenon_stat *result);

/* ---- Attributes ---- */

/* Writes the attributes at a path to `result`. */
int tenon_stat(tenon_volume volume, const char *path, struct tenon_stat *result);

/* Like tenon_stat(), but for a symbolic link itself. */
int tenon_lstat(tenon_volume volume, const char *path, struct tenon_stat *result);

/* Sets the permissions at a path. */
int tenon_chmod(tenon_volume volume, const char *path, uint32_t mode);

/* Sets user and group at a path; TENON_KEEP_ID keeps one. */
int tenon_chown(tenon_volume volume, const char *path, uint32_t uid, uint32_t gid);

/* Sets the length of a file to `size` bytes, and stores it. */
int tenon_truncate(tenon_volume volume, const char *path, uint64_t size);

/*
 * Sets the times at a path, in nanoseconds since 1970, or TENON_TIME_KEEP or
 * TENON_TIME_NOW.
 */
int tenon_utimens(tenon_volume volume, const char *path, int64_t atime_ns, int64_t mtime_ns);

/* ---- Extended attributes ---- */

/*
 * Copies the value of an extended attribute, and returns its length. With a
 * `size` of 0, only returns the length.
 *
 * -ENODATA: there is none. -ERANGE: it is longer than `size`.
 */
int64_t tenon_getxattr(tenon_volume volume, const char *path, const char *name, void *buffer, size_t size);

/*
 * Sets an extended attribute, like "user.color". `flags` is 0, or XATTR_CREATE
 * or XATTR_REPLACE of setxattr(2).
 */
int tenon_setxattr(tenon_volume volume, const char *path, const char *name, const void *value, size_t size,
                   int flags);

/* Removes an extended attribute. -ENODATA: there is none. */
int tenon_removexattr(tenon_volume volume, const char *path, const char *name);

/*
 * Copies the names of all extended attributes, each with a NUL at its end, and
 * returns their length. With a `size` of 0, only returns the length.
 *
 * -ERANGE: they are longer than `size`.
 */
int64_t tenon_listxattr(tenon_volume volume, const char *path, char *buffer, size_t size);

/* ---- Names ---- */

/* Removes a name of a file. -EISDIR: it is one of a directory. */
int tenon_unlink(tenon_volume volume, const char *path);

/*
 * Renames a file or directory inside of a volume or batch. `flags` is 0, or
 * RENAME_NOREPLACE (1) or RENAME_EXCHANGE (2) of renameat2(2).
 *
 * -EEXIST, -ENOTEMPTY, -EISDIR, -ENOTDIR: as in rename(2).
 */
int tenon_rename(tenon_volume volume, const char *from, const char *to, uint32_t flags);

/* Makes a further name of a file, which a volume named by path cannot have. */
int tenon_link(tenon_volume volume, const char *from, const char *to);

/* Makes a symbolic link at `path` to `target`. */
int tenon_symlink(tenon_volume volume, const char *target, const char *path);

/*
 * Copies the target of a symbolic link, without a NUL, and returns its length.
 * With a `size` of 0, only returns the length. -ERANGE: it is longer than `size`.
 */
int64_t tenon_readlink(tenon_volume volume, const char *path, void *buffer, size_t size);

/* ---- Directories ---- */

/* Makes a directory. */
int tenon_mkdir(tenon_volume volume, const char *path, uint32_t mode);

/* Removes an empty directory. -ENOTEMPTY: it is not empty. */
int tenon_rmdir(tenon_volume volume, const char *path);

/* Opens a directory for listing, and returns its handle. */
tenon_dir tenon_opendir(tenon_volume volume, const char *path);

/*
 * Writes the next entry to `result`, and returns 1; returns 0 at the end. "."
 * and ".." are left out. Threads that share a handle get different entries.
 */
int tenon_readdir(tenon_dir dir, struct tenon_dirent *result);

/* Closes a directory. */
int tenon_closedir(tenon_dir dir);

/* ---- Batches ---- */

/*
 * Puts a directory into batch mode, and returns a handle that is used like one
 * of a volume whose root is the directory. Its files are those of the volume
 * at this moment. Changes are private, and stored on this machine and in packs,
 * until tenon_batch_commit(). If the directory has an open batch, continues it,
 * with all its changes. `path` must have no symbolic links.
 *
 * -EOPNOTSUPP: the volume is named by path, has its names in a database, or was
 * opened with "read-only" or "writeback". -EBUSY: the batch is in use, or there
 * is one in a directory above or below. -EINVAL: `volume` is a batch.
 */
tenon_volume tenon_batch_begin(tenon_volume volume, const char *path);

/*
 * Verifies the changes of a batch, and adds them to the volume in one step. All
 * that does not collide with changes that others have made is added, and the
 * rest is refused one by one; its bytes are kept (docs/batch.md). Waits at most
 * `timeout_ms` milliseconds for data to be stored (negative: without a limit).
 * `result` may be NULL.
 *
 * -EBUSY: files of the batch are open; the handle stays open, too. After any
 * other error the handle is closed and nothing is lost: tenon_batch_begin()
 * continues the batch, unless the text says that it is merged. -EDQUOT: a quota
 * has no room.
 */
int tenon_batch_commit(tenon_volume batch, int64_t timeout_ms, struct tenon_batch_result *result);

/*
 * Writes the first refused change of a committed batch whose index is at least
 * `from` to `result`, and returns 1; returns 0 if there is none. `id` is that
 * of the tenon_batch_result, and `volume` the volume in which the batch was. To
 * list all changes, begin with 0, and continue with the last index plus 1.
 *
 * -ENOENT: the volume has no such batch. -EINVAL: `id` is not an id, or
 * `volume` is a batch.
 */
int tenon_batch_refused(tenon_volume volume, const char *id, uint64_t from,
                        struct tenon_refused_change *result);

/*
 * Makes a refused change again, and removes it from the list. A file that was
 * kept under another name gets its name. Removes and replaces no file. After an
 * error, the change stays in the list.
 *
 * -ENOENT: there is no such change. -EEXIST, -ENOTEMPTY and others: the change
 * is refused again, as the call that makes it would be. -EOPNOTSUPP: it cannot
 * be made again; the text says why. -EINVAL: as for tenon_batch_refused().
 */
int tenon_batch_retry(tenon_volume volume, const char *id, uint64_t index);

/*
 * Removes a refused change from the list. A file that keeps its bytes stays.
 *
 * -ENOENT: there is no such change. -EINVAL: as for tenon_batch_refused().
 */
int tenon_batch_forget(tenon_volume volume, const char *id, uint64_t index);

/* Drops a batch with all its changes, and closes its handle and its files. */
int tenon_batch_discard(tenon_volume batch);

/* Writes what was done in a batch to `result`, while other threads work in it. */
int tenon_batch_progress(tenon_volume batch, struct tenon_batch_progress *result);

#ifdef __cplusplus
}
#endif

#endif
