//! The stages in which a request gets its sender, and a slot.

use http::request::Parts;
use s3s::{Body, S3Result, s3_error};

use super::{Addressed, Refusal};
use crate::access_log::RequestFacts;
use crate::admission::Permit;
use crate::authentication::{self, SigningContext};
use crate::context::EndpointContext;
use crate::identity::Identity;
use crate::operations::BodyKind;
use crate::scope::RequestScope;
use crate::wire::{self, FormPost, FormResponse, Framing, Verifier};

/// A request whose signature was verified, that has none, or that this process sends in the name of a user.
pub(crate) struct Authenticated {
    pub(super) head: Parts,
    pub(super) body: Body,
    pub(super) scope: RequestScope,
    /// The framing of the body, whose chunks the sender may have signed as well.
    pub(super) framing: Framing,
    /// The response that a browser's form asks for. The form has become the equivalent PUT.
    pub(super) form: Option<FormResponse>,
    pub(super) facts: RequestFacts,
}

/// An authenticated request that was given a slot.
pub(crate) struct Admitted(pub(super) Authenticated);

impl Addressed {
    /// Verifies the signature of a request, or accepts the identity of one from this process. The body is read only if it
    /// is a form whose signature covers it or lies in it.
    pub(crate) async fn authenticate(
        self,
        verifier: &Verifier,
        context: &EndpointContext,
    ) -> Result<Authenticated, Refusal> {
        let identity = self.connection().and_then(|connection| connection.identity.clone());
        match (self.operation.body, identity) {
            (BodyKind::BrowserForm, _) => Ok(self.authenticate_form(context).await?),
            (_, Some(identity)) => Ok(self.accept_identity(&identity, context)?),
            (_, None) => self.authenticate_head(verifier, context).await,
        }
    }

    /// Accepts the sender of a request from this process, unless the user was removed or got another secret since the
    /// secret was checked.
    fn accept_identity(self, identity: &Identity, context: &EndpointContext) -> S3Result<Authenticated> {
        if !identity.is_current(&context.users) {
            return Err(s3_error!(AccessDenied, "Access Denied."));
        }
        let framing = Framing::of(&self.head, &self.body, None)?;
        let scope = self.scope(Some(identity.access_key().to_owned()), context);
        let Self { head, body, facts, .. } = self;
        Ok(Authenticated { head, body, scope, framing, form: None, facts })
    }

    async fn authenticate_head(
        mut self,
        verifier: &Verifier,
        context: &EndpointContext,
    ) -> Result<Authenticated, Refusal> {
        authentication::check(&self.signed, &self.query, signing_context(context))?;
        let mut signed_body = Body::empty();
        if let BodyKind::StsForm { bytes_max } = self.operation.body {
            let peer = self.peer();
            let reading = duplicate_body(self.body, bytes_max);
            (self.body, signed_body) = context.admission.read_pre_auth(peer, reading).await?;
        }
        let credentials = verifier.verify(&self.signed, signed_body).await?;
        // Only the key whose signature was verified counts, whatever access key other parts of the request name.
        let signer = credentials.as_ref().map(|credentials| credentials.access_key.clone());
        authentication::check_token(&self.signed, &self.query, signer.as_deref(), &context.sessions)?;
        let framing = Framing::of(&self.head, &self.body, credentials.as_ref())?;
        let scope = self.scope(signer, context);
        let Self { head, body, facts, .. } = self;
        Ok(Authenticated { head, body, scope, framing, form: None, facts })
    }

    async fn authenticate_form(self, context: &EndpointContext) -> S3Result<Authenticated> {
        let peer = self.peer();
        let mut scope = self.scope(None, context);
        let Self { head, body, target, facts, .. } = self;
        let bucket = (target.bucket().unwrap_or_default(), scope.bucket_url.as_str());
        let reading = wire::read_form(head, body, bucket, signing_context(context));
        let form = context.admission.read_pre_auth(peer, reading).await?;
        let FormPost { head, body, key, signer, response } = form;
        scope.caller = context.caller(signer, peer, &scope.query);
        scope.target = target.with_key(&key);
        Ok(Authenticated { head, body, scope, framing: Framing::Plain, form: Some(response), facts })
    }

    /// Returns the facts of the request for later stages.
    fn scope(&self, signer: Option<String>, context: &EndpointContext) -> RequestScope {
        RequestScope {
            id: self.id.clone(),
            operation: self.operation,
            target: self.target.clone(),
            query: self.query.clone(),
            bucket_url: self.bucket_url(),
            caller: context.caller(signer, self.peer(), &self.query),
            copy_source: None,
        }
    }
}

impl Authenticated {
    /// Takes a slot for the request. Error: `SlowDown`.
    pub(crate) fn admit(self) -> S3Result<(Admitted, Permit)> {
        let caller = &self.scope.caller;
        if let Some(user) = &caller.user {
            self.facts.note_user(user);
        }
        let slot = caller.admitted.admit()?;
        Ok((Admitted(self), slot))
    }
}

fn signing_context(context: &EndpointContext) -> SigningContext<'_> {
    SigningContext { region: &context.region, sessions: &context.sessions, now: context.clock.now() }
}

/// Reads a short body and returns two copies of it.
async fn duplicate_body(mut body: Body, bytes_max: usize) -> S3Result<(Body, Body)> {
    let bytes = body.store_all_limited(bytes_max).await;
    let bytes = bytes.map_err(|_| s3_error!(MaxMessageLengthExceeded, "Your request was too big."))?;
    Ok((Body::from(bytes.clone()), Body::from(bytes)))
}
