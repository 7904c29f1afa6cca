//! A request of a user who has signed in.

use crate::application::Application;
use crate::objects::Objects;
use crate::process::{Process, Tone};
use crate::reply::{self, Reply};
use crate::session::{CSRF_FIELD, Notice, SignedIn};
use maud::{Markup, html};
use std::net::IpAddr;
use std::sync::Arc;

/// A request of a user who has signed in: the shared state, and the session.
pub(crate) struct Visit {
    pub(crate) application: Arc<Application>,
    pub(crate) signed_in: SignedIn,
    pub(crate) session_id: String,
    /// Address of the user's browser.
    pub(crate) peer: IpAddr,
}

impl Visit {
    pub(crate) fn process(&self) -> &dyn Process {
        self.application.process.as_ref()
    }

    /// Returns access to buckets and objects with the rights of the user.
    pub(crate) fn objects(&self) -> Objects<'_> {
        Objects {
            endpoint: &self.application.endpoint,
            identity: &self.signed_in.session.identity,
            peer: self.peer,
        }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.signed_in.is_admin()
    }

    /// Returns the field that each changing form has.
    pub(crate) fn csrf_field(&self) -> Markup {
        html! { input type="hidden" name=(CSRF_FIELD) value=(self.signed_in.session.csrf); }
    }

    /// Redirects to a page after a change. The page shows `text` as its notice.
    pub(crate) fn redirect(&self, location: &str, tone: Tone, text: impl Into<String>) -> Reply {
        self.application.sessions.set_notice(&self.session_id, Notice { tone, text: text.into() });
        reply::see_other(location)
    }
}
