//! Wrappers of stores that inject faults, add latency, or count and trace calls: for tests, benchmarks and diagnosis.
//!
//! Owns one interface that wraps calls ([`Layer`]) and three layers. `sync`, settings, uploads by id and versions bypass
//! the layer. To a layer, a rename inside the store is a copy to the target, and the end of a writer is a put. A wrapped
//! store is an [`ObjectStore`] itself, so layers can be stacked. Their handles are cheap to clone and can be used while
//! the store is in use.
//!
//! Refuses: to change what a call does in the store. A layer may delay a call, count it, or make it fail as a real
//! server can.

mod faults;
mod latency;
mod trace;

pub use faults::{Fault, Faults, Rule};
pub use latency::Latency;
pub use trace::{RequestCounts, Trace};

use crate::{
    Attributes, CopyOptions, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey, ObjectMeta,
    ObjectRef, ObjectStore, ObjectWriter, Payload, Precondition, PutOptions, Result, Settings, Tags, Uploads,
    Versions,
};
use bytes::Bytes;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A store whose calls fail as planned.
pub type Faulty<S> = Wrapped<S, Faults>;
/// A store with added latency.
pub type Slow<S> = Wrapped<S, Latency>;
/// A store whose calls are counted and traced.
pub type Traced<S> = Wrapped<S, Trace>;

/// The kinds of calls, as in S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
#[expect(missing_docs, reason = "the names of the seam's calls")]
pub enum Operation {
    Get,
    Head,
    Put,
    Copy,
    Delete,
    List,
    GetTags,
    SetTags,
    BeginMultipart,
    PutPart,
    CopyPart,
    Complete,
    Abort,
}

impl Operation {
    /// Every operation, in the order of its discriminant.
    pub const ALL: [Self; 13] = [
        Self::Get,
        Self::Head,
        Self::Put,
        Self::Copy,
        Self::Delete,
        Self::List,
        Self::GetTags,
        Self::SetTags,
        Self::BeginMultipart,
        Self::PutPart,
        Self::CopyPart,
        Self::Complete,
        Self::Abort,
    ];

    /// Returns the name of the S3 request that corresponds to the call, as metrics and traces show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Copy => "COPY",
            Self::Delete => "DELETE",
            Self::List => "LIST",
            Self::GetTags => "GET-TAGS",
            Self::SetTags => "PUT-TAGS",
            Self::BeginMultipart => "MULTIPART",
            Self::PutPart => "PART",
            Self::CopyPart => "PART-COPY",
            Self::Complete => "COMPLETE",
            Self::Abort => "ABORT",
        }
    }
}

/// A call that passes through a layer.
#[derive(Debug, Clone)]
pub struct Call {
    /// The kind of call.
    pub operation: Operation,
    /// The key (of a copy: the target's), or the prefix of a listing.
    pub subject: Bytes,
    /// Length of the body that is sent to the store, in bytes.
    pub sent_bytes: u64,
}

/// An interceptor of calls between a caller and a store.
pub trait Layer: Send + Sync + fmt::Debug + Clone + 'static {
    /// Wraps one call. The work does nothing before it is polled.
    fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Inspects or replaces an object that a `get` has returned, before the caller reads its body.
    fn received(&self, call: &Call, object: Object) -> Object {
        let _ = call;
        object
    }
}

/// A store with a layer around its calls, except `sync`, settings, uploads by id and versions.
#[derive(Debug, Clone)]
pub struct Wrapped<S, L> {
    store: S,
    layer: L,
}

impl<S: ObjectStore, L: Layer> Wrapped<S, L> {
    /// Puts the layer around the store.
    pub fn new(store: S, layer: L) -> Self {
        Self { store, layer }
    }

    /// Returns the layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

/// Returns a call about a key that sends no body.
fn call_of(operation: Operation, key: &ObjectKey) -> Call {
    call_with_body(operation, key, 0)
}

/// Returns a call about a key that sends a body.
fn call_with_body(operation: Operation, key: &ObjectKey, sent_bytes: u64) -> Call {
    Call { operation, subject: Bytes::copy_from_slice(key.as_bytes()), sent_bytes }
}

#[async_trait::async_trait]
impl<S: ObjectStore, L: Layer> ObjectStore for Wrapped<S, L> {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let call = call_of(Operation::Get, key);
        let object = self.layer.around(&call, self.store.get(key, options)).await?;
        Ok(self.layer.received(&call, object))
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.layer.around(&call_of(Operation::Head, key), self.store.head(key)).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let call = call_with_body(Operation::Put, key, body.len());
        self.layer.around(&call, self.store.put(key, body, options)).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        let Some(writer) = self.store.writer(key, len_bytes).await? else { return Ok(None) };
        let call = call_of(Operation::Put, key);
        Ok(Some(Box::new(WrappedWriter { writer, layer: self.layer.clone(), call })))
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let begin = call_of(Operation::BeginMultipart, key);
        let upload = self.layer.around(&begin, self.store.multipart(key, attributes, tags)).await?;
        Ok(Arc::new(WrappedUpload { upload, layer: self.layer.clone(), key: key.clone() }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        self.layer.around(&call_of(Operation::Copy, to), self.store.copy(from, to, options)).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        let renamed = self.store.rename(from, to, precondition);
        self.layer.around(&call_of(Operation::Copy, to), renamed).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.layer.around(&call_of(Operation::Delete, key), self.store.delete(key, precondition)).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let call = Call { operation: Operation::List, subject: request.prefix.clone(), sent_bytes: 0 };
        self.layer.around(&call, self.store.list(request)).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.layer.around(&call_of(Operation::GetTags, key), self.store.tags(key)).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.layer.around(&call_of(Operation::SetTags, key), self.store.set_tags(key, tags)).await
    }

    async fn sync(&self) -> Result<()> {
        self.store.sync().await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        self.store.uploads()
    }

    fn settings(&self) -> Option<&dyn Settings> {
        self.store.settings()
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.store.versions()
    }
}

/// A writer with a layer around its end, at which the object is stored.
#[derive(Debug)]
struct WrappedWriter<L> {
    writer: Box<dyn ObjectWriter>,
    layer: L,
    call: Call,
}

#[async_trait::async_trait]
impl<L: Layer> ObjectWriter for WrappedWriter<L> {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.call.sent_bytes += piece.len() as u64;
        self.writer.write(piece).await
    }

    async fn finish(self: Box<Self>, options: PutOptions) -> Result<ObjectRef> {
        let Self { writer, layer, call } = *self;
        layer.around(&call, writer.finish(options)).await
    }
}

/// A multipart upload with a layer around its calls.
#[derive(Debug)]
struct WrappedUpload<L> {
    upload: Arc<dyn Multipart>,
    layer: L,
    key: ObjectKey,
}

#[async_trait::async_trait]
impl<L: Layer> Multipart for WrappedUpload<L> {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        let call = call_with_body(Operation::PutPart, &self.key, body.len());
        self.layer.around(&call, self.upload.put_part(number, body)).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let call = call_of(Operation::CopyPart, &self.key);
        self.layer.around(&call, self.upload.copy_part(number, from, range)).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        self.layer.around(&call_of(Operation::Complete, &self.key), self.upload.complete(precondition)).await
    }

    async fn abort(&self) -> Result<()> {
        self.layer.around(&call_of(Operation::Abort, &self.key), self.upload.abort()).await
    }
}

/// A shared store is a store, so that layers can also wrap an `Arc<dyn ObjectStore>`.
#[async_trait::async_trait]
impl<S: ObjectStore + ?Sized> ObjectStore for Arc<S> {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        S::get(self, key, options).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        S::head(self, key).await
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        S::put(self, key, body, options).await
    }

    async fn writer(&self, key: &ObjectKey, len_bytes: Option<u64>) -> Result<Option<Box<dyn ObjectWriter>>> {
        S::writer(self, key, len_bytes).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        S::multipart(self, key, attributes, tags).await
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        S::copy(self, from, to, options).await
    }

    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        S::rename(self, from, to, precondition).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        S::delete(self, key, precondition).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        S::list(self, request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        S::tags(self, key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        S::set_tags(self, key, tags).await
    }

    async fn sync(&self) -> Result<()> {
        S::sync(self).await
    }

    fn uploads(&self) -> Option<&dyn Uploads> {
        S::uploads(self)
    }

    fn settings(&self) -> Option<&dyn Settings> {
        S::settings(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        S::versions(self)
    }
}
