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
use crate::bucket::Bucket;
use crate::error::{invalid_argument, malformed_xml, not_implemented};
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
const NEVER_EMITTED: [&str; 11] = [
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
pub(crate) struct NotificationRule {
    pub(crate) id: Arc<str>,
    /// The name of a webhook.
    pub(crate) destination: String,
    /// Event names, or prefixes of names that end in `*`.
    events: Vec<String>,
    prefix: String,
    suffix: String,
}

impl NotificationRule {
    /// Returns whether the rule's filter matches the key.
    pub(crate) fn matches_key(&self, key: &ObjectKey) -> bool {
        let key = key.as_bytes();
        key.starts_with(self.prefix.as_bytes()) && key.ends_with(self.suffix.as_bytes())
    }

    pub(crate) fn matches_kind(&self, kind: EventKind) -> bool {
        self.events.iter().any(|event| matches(event, kind.name()))
    }

    /// Returns whether an event could match both rules.
    fn overlaps(&self, other: &Self) -> bool {
        let begin = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
        let end = |one: &str, other: &str| one.ends_with(other) || other.ends_with(one);
        let same = |one: &String| {
            other.events.iter().any(|other| matches(one, stem(other)) || matches(other, stem(one)))
        };
        begin(&self.prefix, &other.prefix) && end(&self.suffix, &other.suffix) && self.events.iter().any(same)
    }
}

/// Returns whether an event pattern matches a name. A pattern that ends in `*` matches by prefix.
fn matches(event: &str, name: &str) -> bool {
    match event.strip_suffix('*') {
        Some(family) => name.starts_with(family),
        None => event == name,
    }
}

/// Returns an event name without its wildcard.
fn stem(event: &str) -> &str {
    event.trim_end_matches('*')
}

/// Returns the rules of a stored configuration. Entries that are not valid are left out.
pub(crate) fn parse_rules(configuration: NotificationConfiguration) -> Vec<NotificationRule> {
    let queues = configuration.queue_configurations.unwrap_or_default();
    queues.iter().filter_map(|queue| parse_rule(queue).ok()).collect()
}

/// Validates and stores a bucket's configuration. Entries without an id get one.
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
        return Err(unknown_destination(arn));
    }
    let (mut rules, mut ids) = (Vec::<NotificationRule>::new(), BTreeSet::new());
    for queue in configuration.queue_configurations.iter_mut().flatten() {
        let id = queue.id.get_or_insert_with(|| format!("{:016x}", entropy.next_u64())).clone();
        if id.len() > ID_BYTES_MAX || !ids.insert(id.clone()) {
            let message = "The ID of a configuration must be unique and no longer than 255 bytes.";
            return Err(invalid_argument(message, "Id", &id));
        }
        let rule = parse_rule(queue)?;
        if !notifier.has_webhook(&rule.destination) {
            return Err(unknown_destination(&queue.queue_arn));
        }
        if rules.iter().any(|other| other.overlaps(&rule)) {
            return Err(s3_error!(
                InvalidArgument,
                "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are overlapping for the same event type."
            ));
        }
        rules.push(rule);
    }
    settings::put_notification(bucket, &configuration).await
}

fn parse_rule(queue: &dto::QueueConfiguration) -> S3Result<NotificationRule> {
    let destination = queue.queue_arn.strip_prefix("arn:tenon:sqs::");
    let destination = destination.and_then(|rest| rest.strip_suffix(":webhook"));
    let destination = destination.ok_or_else(|| unknown_destination(&queue.queue_arn))?.to_owned();
    if queue.events.is_empty() {
        return Err(malformed_xml());
    }
    let events = queue.events.iter().map(parse_event).collect::<S3Result<_>>()?;
    let (prefix, suffix) = parse_filter(queue.filter.as_ref())?;
    let id = queue.id.as_deref().unwrap_or_default().into();
    Ok(NotificationRule { id, destination, events, prefix, suffix })
}

/// Returns the name of an event without `s3:`.
fn parse_event(event: &Event) -> S3Result<String> {
    let unknown = || {
        let message = format!("The event '{}' is not supported for notifications", event.as_ref());
        invalid_argument(&message, "Event", event.as_ref())
    };
    let name = event.as_ref().strip_prefix("s3:").ok_or_else(unknown)?;
    let is_known = match name.strip_suffix(":*") {
        Some(family) => FAMILIES.contains(&family),
        None => EventKind::named(name).is_some() || NEVER_EMITTED.contains(&name),
    };
    if is_known { Ok(name.to_owned()) } else { Err(unknown()) }
}

/// Returns the prefix and the suffix of a filter.
fn parse_filter(filter: Option<&NotificationConfigurationFilter>) -> S3Result<(String, String)> {
    let rules = filter.and_then(|filter| filter.key.as_ref()).and_then(|key| key.filter_rules.as_ref());
    let (mut prefix, mut suffix) = (None, None);
    for rule in rules.into_iter().flatten() {
        let name = rule.name.as_ref().map(|name| name.as_str().to_ascii_lowercase());
        let name = name.unwrap_or_default();
        let value = rule.value.clone().unwrap_or_default();
        if value.len() > FILTER_BYTES_MAX {
            let message = "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation";
            return Err(invalid_argument(message, "FilterRule", &value));
        }
        let affix = match name.as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => {
                let message = "filter rule name must be either prefix or suffix";
                return Err(invalid_argument(message, "FilterRule", &name));
            }
        };
        if affix.replace(value).is_some() {
            let message = format!("Cannot specify more than one {name} rule in a filter.");
            return Err(invalid_argument(&message, "FilterRule", &name));
        }
    }
    Ok((prefix.unwrap_or_default(), suffix.unwrap_or_default()))
}

fn unknown_destination(arn: &str) -> S3Error {
    invalid_argument("Unable to validate the following destination configurations", "Arn", arn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(events: &[&str], prefix: &str, suffix: &str) -> NotificationRule {
        NotificationRule {
            id: "id".into(),
            destination: "hook".to_owned(),
            events: events.iter().map(|&event| event.to_owned()).collect(),
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
        }
    }

    #[test]
    fn a_rule_matches_its_events_and_keys() {
        let rule = rule(&["ObjectCreated:*", "ObjectRemoved:Delete"], "a/", ".jpg");
        assert!(rule.matches_kind(EventKind::CreatedCopy) && rule.matches_kind(EventKind::RemovedDelete));
        assert!(
            !rule.matches_kind(EventKind::RemovedDeleteMarkerCreated)
                && !rule.matches_kind(EventKind::TaggingPut)
        );
        let matches_key = |key: &str| rule.matches_key(&ObjectKey::try_from(key).unwrap());
        assert!(matches_key("a/b.jpg") && !matches_key("a/b.png") && !matches_key("b/a.jpg"));
    }

    #[test]
    fn rules_overlap_if_an_event_can_match_both() {
        let all = ["ObjectCreated:*"];
        let overlap =
            |one: NotificationRule, other: NotificationRule| one.overlaps(&other) && other.overlaps(&one);
        assert!(overlap(rule(&all, "", ""), rule(&["ObjectCreated:Put"], "a", "b")));
        assert!(overlap(rule(&all, "a", ""), rule(&all, "ab", "x")));
        assert!(!overlap(rule(&all, "a", ""), rule(&all, "b", "")));
        assert!(!overlap(rule(&all, "", ".jpg"), rule(&all, "", ".png")));
        assert!(!overlap(rule(&all, "", ""), rule(&["ObjectRemoved:*"], "", "")));
    }
}
