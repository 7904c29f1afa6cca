//! The verdict on bytes that were read and have a checksum.

use crate::error::{Error, Result};

/// The verdict on a read. The errors name the structure and its place.
#[derive(Debug)]
pub(crate) enum Verdict<T = ()> {
    /// The bytes match their checksum, perhaps only after they were reconstructed.
    Right(T),
    /// The bytes do not match their checksum, by whichever devices they are read.
    Wrong(Error),
    /// The device cannot read the bytes.
    Unreadable(Error),
}

impl<T> Verdict<T> {
    /// Classifies the outcome of a read. An error that says nothing about the bytes is returned as an error.
    pub(crate) fn of(read: Result<T>) -> Result<Self> {
        match read {
            Ok(value) => Ok(Self::Right(value)),
            Err(error) if error.is_wrong() => Ok(Self::Wrong(error)),
            Err(error) if error.is_unreadable() => Ok(Self::Unreadable(error)),
            Err(error) => Err(error),
        }
    }

    /// Returns the value, or the error that names the damage.
    pub(crate) fn into_result(self) -> Result<T> {
        match self {
            Self::Right(value) => Ok(value),
            Self::Wrong(error) | Self::Unreadable(error) => Err(error),
        }
    }

    /// Returns the value, `None` if the bytes are wrong, or an error if they cannot be read. For bytes that may be anything, such as those
    /// behind the end of the log.
    pub(crate) fn right_or_wrong(self) -> Result<Option<T>> {
        match self {
            Self::Right(value) => Ok(Some(value)),
            Self::Wrong(_) => Ok(None),
            Self::Unreadable(error) => Err(error),
        }
    }

    /// Returns the error that names the damage, if the bytes are not right.
    pub(crate) fn damage(self) -> Option<Error> {
        self.into_result().err()
    }

    pub(crate) fn is_right(&self) -> bool {
        matches!(self, Self::Right(_))
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Right(value) => Verdict::Right(map(value)),
            Self::Wrong(error) => Verdict::Wrong(error),
            Self::Unreadable(error) => Verdict::Unreadable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_bytes_are_verdicts_and_others_stay_errors() {
        let reason = || "EIO".to_owned();
        let wrong = [
            Error::damaged("a frame", 7),
            Error::DamagedIndex { what: "a block", at: 7 },
            Error::damaged_entry("an object's record", b"k"),
        ];
        for error in wrong {
            assert!(matches!(Verdict::<()>::of(Err(error.clone())), Ok(Verdict::Wrong(_))), "{error}");
        }
        let unreadable =
            [Error::Device { at: 7, reason: reason() }, Error::UnreadableIndex { at: 7, reason: reason() }];
        for error in unreadable {
            assert!(matches!(Verdict::<()>::of(Err(error.clone())), Ok(Verdict::Unreadable(_))), "{error}");
        }
        for error in [Error::Full, Error::Aborted(reason()), Error::Failed(reason())] {
            assert!(Verdict::<()>::of(Err(error.clone())).is_err(), "{error}");
        }
        assert!(Verdict::of(Ok(3)).unwrap().map(|three| three + 1).is_right());
    }

    #[test]
    fn unreadable_bytes_are_never_taken_for_wrong_ones() {
        let unreadable: Verdict = Verdict::Unreadable(Error::Device { at: 7, reason: "EIO".into() });
        assert!(unreadable.right_or_wrong().is_err());
        assert!(matches!(Verdict::<()>::Wrong(Error::damaged("a frame", 7)).right_or_wrong(), Ok(None)));
        assert!(Verdict::<()>::Wrong(Error::damaged("a frame", 7)).damage().is_some());
        assert!(Verdict::Right(()).damage().is_none());
    }
}
