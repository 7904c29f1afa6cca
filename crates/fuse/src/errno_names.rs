//! Names of errors (errno(3)), for metrics and traces.

use std::borrow::Cow;

/// Errors that metrics and traces show by name.
pub(crate) const ERRORS: [(i32, &str); 31] = [
    (libc::ENOENT, "ENOENT"),
    (libc::EIO, "EIO"),
    (libc::ESTALE, "ESTALE"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::EACCES, "EACCES"),
    (libc::EPERM, "EPERM"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::EXDEV, "EXDEV"),
    (libc::EROFS, "EROFS"),
    (libc::ENODATA, "ENODATA"),
    (libc::EFBIG, "EFBIG"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ERANGE, "ERANGE"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENOLCK, "ENOLCK"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EINTR, "EINTR"),
    (libc::EISDIR, "EISDIR"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EBADF, "EBADF"),
    (libc::EBUSY, "EBUSY"),
    (libc::EMLINK, "EMLINK"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::E2BIG, "E2BIG"),
];

/// Returns the name of an error, or its number if it has none here.
pub fn errno_name(errno: i32) -> Cow<'static, str> {
    let known = ERRORS.iter().find(|(known, _)| *known == errno);
    known.map_or_else(|| Cow::Owned(errno.to_string()), |(_, name)| Cow::Borrowed(*name))
}
