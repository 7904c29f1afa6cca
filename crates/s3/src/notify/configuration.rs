//! A bucket's notification configuration: which events go to which webhook.
//!
//! Destinations are the webhooks that the endpoint was started with, addressed as queues:
//! `arn:tenon:sqs::NAME:webhook`.

use events::EventKind;
use s3s::dto::{self, Event, NotificationConfiguration, NotificationConfigurationFilter};
use s3s::{S3Error, S3Result, s3_error};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Entropy, ObjectKey};

use super::Notifier;
use crate::authentication::argument;
use crate::bucket::Bucket;
use crate::error::{malformed_xml, not_implemented};
use crate::ops::settings;

/// S3's maximum lengths of a configuration's id and of a filter value, in bytes.
const ID_BYTES_MAX: usize = 255;
const FILTER_BYTES_MAX: usize = 1024;

/// The event families that a configuration may name with `:*`.
const FAMILIES: [&str; 6] = [
    "ObjectCreated",
    "ObjectRemoved",
    "ObjectTagging",
    "LifecycleExpiration",
    // The last two are accepted, though this endpoint never emits such events.
    "ObjectRestore",
    "Replication",
];

/// Other event types of AWS that are accepted, though this endpoint never emits them.
const NEVER: [&str; 11] = [
    "ObjectRestore:Post",
    "ObjectRestore:Completed",
    "ObjectRestore:Delete",
    "ReducedRedundancyLostObject",
    "Replication:OperationFailedReplication",
    "Replication:OperationMissedThreshold",
    "Replication:OperationReplicatedAfterThreshold",
    "Replication:OperationNotTracked",
    "LifecycleTransition",
    "IntelligentTiering",
    "ObjectAcl:Put",
];

/// A rule that sends events of certain kinds and keys to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) id: Arc<str>,
    pub(crate) destination: String,
    /// Event names, or prefixes of names that end in `*`.
    events: Vec<String>,
    prefix: String,
    suffix: String,
}

impl Route {
    /// Whether the rule's filter matches the key.
    pub(crate) fn is_about(&self, key: &ObjectKey) -> bool {
        let key = key.as_bytes();
        key.starts_with(self.prefix.as_bytes()) && key.ends_with(self.suffix.as_bytes())
    }

    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.events.iter().any(|event| matches(event, kind.name()))
    }

    /// Whether an event could match both rules.
    fn overlaps(&self, other: &Self) -> bool {
        let begin = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
        let end = |one: &str, other: &str| one.ends_with(other) || other.ends_with(one);
        let same = |one: &String| {
            other.events.iter().any(|other| matches(one, stem(other)) || matches(other, stem(one)))
        };
        begin(&self.prefix, &other.prefix) && end(&self.suffix, &other.suffix) && self.events.iter().any(same)
    }
}

/// Whether an event pattern matches a name. A pattern that ends in `*` matches by prefix.
fn matches(event: &str, name: &str) -> bool {
    match event.strip_suffix('*') {
        Some(family) => name.starts_with(family),
        None => event == name,
    }
}

fn stem(event: &str) -> &str {
    event.trim_end_matches('*')
}

/// Returns the rules of a validated configuration.
pub(crate) fn routes(configuration: NotificationConfiguration) -> Vec<Route> {
    let queues = configuration.queue_configurations.unwrap_or_default();
    queues.iter().filter_map(|queue| route(queue).ok()).collect()
}

/// Sets a bucket's configuration. Entries without an id get one.
pub(crate) async fn put(
    bucket: &Bucket,
    mut configuration: NotificationConfiguration,
    notifier: &Notifier,
    entropy: &Entropy,
) -> S3Result<()> {
    if configuration.event_bridge_configuration.is_some() {
        return Err(not_implemented("Sending events to Amazon EventBridge"));
    }
    let topics = configuration.topic_configurations.iter().flatten().map(|topic| &topic.topic_arn);
    let functions = configuration.lambda_function_configurations.iter().flatten();
    if let Some(arn) = topics.chain(functions.map(|function| &function.lambda_function_arn)).next() {
        return Err(no_such_destination(arn));
    }
    let (mut routes, mut ids) = (Vec::<Route>::new(), BTreeSet::new());
    for queue in configuration.queue_configurations.iter_mut().flatten() {
        let id = queue.id.get_or_insert_with(|| format!("{:016x}", entropy.next_u64())).clone();
        if id.len() > ID_BYTES_MAX || !ids.insert(id.clone()) {
            let message = "The ID of a configuration must be unique and no longer than 255 bytes.";
            return Err(argument(message, "Id", &id));
        }
        let route = route(queue)?;
        if !notifier.has_webhook(&route.destination) {
            return Err(no_such_destination(&queue.queue_arn));
        }
        if routes.iter().any(|other| other.overlaps(&route)) {
            return Err(s3_error!(
                InvalidArgument,
                "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are overlapping for the same event type."
            ));
        }
        routes.push(route);
    }
    settings::put_notification(bucket, &configuration).await
}

fn route(queue: &dto::QueueConfiguration) -> S3Result<Route> {
    let destination = queue.queue_arn.strip_prefix("arn:tenon:sqs::");
    let destination = destination.and_then(|rest| rest.strip_suffix(":webhook"));
    let destination = destination.ok_or_else(|| no_such_destination(&queue.queue_arn))?.to_owned();
    if queue.events.is_empty() {
        return Err(malformed_xml());
    }
    let events = queue.events.iter().map(event).collect::<S3Result<_>>()?;
    let (prefix, suffix) = filter(queue.filter.as_ref())?;
    let id = queue.id.as_deref().unwrap_or_default().into();
    Ok(Route { id, destination, events, prefix, suffix })
}

/// Returns the name of an event without `s3:`.
fn event(event: &Event) -> S3Result<String> {
    let unknown = || {
        let message = format!("The event '{}' is not supported for notifications", event.as_ref());
        argument(&message, "Event", event.as_ref())
    };
    let name = event.as_ref().strip_prefix("s3:").ok_or_else(unknown)?;
    let is_known = match name.strip_suffix(":*") {
        Some(family) => FAMILIES.contains(&family),
        None => EventKind::named(name).is_some() || NEVER.contains(&name),
    };
    if is_known { Ok(name.to_owned()) } else { Err(unknown()) }
}

/// Returns the prefix and the suffix of a filter.
fn filter(filter: Option<&NotificationConfigurationFilter>) -> S3Result<(String, String)> {
    let rules = filter.and_then(|filter| filter.key.as_ref()).and_then(|key| key.filter_rules.as_ref());
    let (mut prefix, mut suffix) = (None, None);
    for rule in rules.into_iter().flatten() {
        let name = rule.name.as_ref().map(|name| name.as_str().to_ascii_lowercase());
        let name = name.unwrap_or_default();
        let value = rule.value.clone().unwrap_or_default();
        if value.len() > FILTER_BYTES_MAX {
            let message = "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation";
            return Err(argument(message, "FilterRule", &value));
        }
        let place = match name.as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => {
                let message = "filter rule name must be either prefix or suffix";
                return Err(argument(message, "FilterRule", &name));
            }
        };
        if place.replace(value).is_some() {
            let message = format!("Cannot specify more than one {name} rule in a filter.");
            return Err(argument(&message, "FilterRule", &name));
        }
    }
    Ok((prefix.unwrap_or_default(), suffix.unwrap_or_default()))
}

fn no_such_destination(arn: &str) -> S3Error {
    argument("Unable to validate the following destination configurations", "Arn", arn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(events: &[&str], prefix: &str, suffix: &str) -> Route {
        Route {
            id: "id".into(),
            destination: "hook".to_owned(),
            events: events.iter().map(|&event| event.to_owned()).collect(),
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
        }
    }

    #[test]
    fn a_route_is_for_its_events_and_keys() {
        let route = route(&["ObjectCreated:*", "ObjectRemoved:Delete"], "a/", ".jpg");
        assert!(route.wants(EventKind::CreatedCopy) && route.wants(EventKind::RemovedDelete));
        assert!(!route.wants(EventKind::RemovedDeleteMarkerCreated) && !route.wants(EventKind::TaggingPut));
        let is_about = |key: &str| route.is_about(&ObjectKey::try_from(key).unwrap());
        assert!(is_about("a/b.jpg") && !is_about("a/b.png") && !is_about("b/a.jpg"));
    }

    #[test]
    fn routes_overlap_where_an_event_would_go_by_both() {
        let all = ["ObjectCreated:*"];
        let overlap = |one: Route, other: Route| one.overlaps(&other) && other.overlaps(&one);
        assert!(overlap(route(&all, "", ""), route(&["ObjectCreated:Put"], "a", "b")));
        assert!(overlap(route(&all, "a", ""), route(&all, "ab", "x")));
        assert!(!overlap(route(&all, "a", ""), route(&all, "b", "")));
        assert!(!overlap(route(&all, "", ".jpg"), route(&all, "", ".png")));
        assert!(!overlap(route(&all, "", ""), route(&["ObjectRemoved:*"], "", "")));
    }
}
