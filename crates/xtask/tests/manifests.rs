//! The manifests for Kubernetes: they are valid YAML, name only things that exist, and pass flags that the program has.

use crate::package::{program, repository, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Image of the program, which users build by the Containerfile.
const OWN_IMAGE: &str = "localhost/tenon:latest";

/// Prints the documents of YAML files as one list in JSON.
const TO_JSON: &str = "import json, sys, yaml
print(json.dumps([document for path in sys.argv[1:] for document in yaml.safe_load_all(open(path))]))";

/// Returns the documents of manifests.
fn documents(names: &[&str]) -> Vec<Value> {
    let folder = repository().join("packaging/kubernetes");
    let mut python = Command::new(servers::program("python/bin/python"));
    let output =
        python.args(["-c", TO_JSON]).args(names.iter().map(|name| folder.join(name))).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the specification of a pod, if the document has one.
fn pod(document: &Value) -> Option<&Value> {
    match document["kind"].as_str()? {
        "Pod" => Some(&document["spec"]),
        "Deployment" | "DaemonSet" | "StatefulSet" => Some(&document["spec"]["template"]["spec"]),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Returns the names of all documents of a kind.
fn names<'d>(documents: &'d [Value], kind: &str) -> BTreeSet<&'d str> {
    let named = documents.iter().filter(|document| document["kind"] == kind);
    named.map(|document| string(&document["metadata"]["name"])).collect()
}

const ALL: [&str; 4] = ["serve.yaml", "mount.yaml", "csi.yaml", "csi-example.yaml"];

#[test]
fn s796_the_program_has_the_flags_of_the_manifests() {
    let documents = documents(&ALL);
    let containers = documents.iter().filter_map(pod).flat_map(|pod| list(&pod["containers"]));
    let mut commands = 0;
    for container in containers {
        let image = string(&container["image"]);
        if image != OWN_IMAGE {
            let tag = image.rsplit_once(':').map(|(_, tag)| tag);
            assert!(tag.is_some_and(|tag| tag != "latest"), "{image} needs a version");
            continue;
        }
        let words = list(&container["args"]).iter().map(string);
        // With --help, the program ends after it has parsed the arguments.
        let output = Command::new(program()).args(words).arg("--help").output().unwrap();
        assert!(output.status.success(), "{container}: {}", text(&output));
        commands += 1;
    }
    assert_eq!(commands, 4);
}

#[test]
fn s796_manifests_name_what_exists() {
    let documents = documents(&ALL);
    for document in &documents {
        assert!(document["apiVersion"].is_string() && document["metadata"]["name"].is_string(), "{document}");
        if let Some(template) = document["spec"].get("template") {
            assert_eq!(document["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
        }
        let Some(pod) = pod(document) else { continue };
        let volumes: BTreeSet<&str> =
            list(&pod["volumes"]).iter().map(|volume| string(&volume["name"])).collect();
        for container in list(&pod["containers"]) {
            for mount in list(&container["volumeMounts"]) {
                assert!(volumes.contains(string(&mount["name"])), "{mount}");
            }
            for source in list(&container["envFrom"]) {
                assert!(
                    names(&documents, "Secret").contains(string(&source["secretRef"]["name"])),
                    "{source}"
                );
            }
        }
        for volume in list(&pod["volumes"]) {
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                assert!(names(&documents, "PersistentVolumeClaim").contains(claim), "{claim}");
            }
        }
        if let Some(account) = pod["serviceAccountName"].as_str() {
            assert!(names(&documents, "ServiceAccount").contains(account), "{account}");
        }
    }
    for binding in documents.iter().filter(|document| !document["roleRef"].is_null()) {
        assert!(
            names(&documents, string(&binding["roleRef"]["kind"]))
                .contains(string(&binding["roleRef"]["name"]))
        );
        for subject in list(&binding["subjects"]) {
            assert!(names(&documents, "ServiceAccount").contains(string(&subject["name"])), "{subject}");
        }
    }
}

/// The name of the driver is the default of `tenon csi`, and stands in every place that must have it. Storage classes have parameters
/// and mount options that the driver accepts.
#[test]
fn s796_manifests_agree_on_the_driver() {
    let documents = documents(&["csi.yaml", "csi-example.yaml"]);
    let drivers: Vec<&str> = names(&documents, "CSIDriver").into_iter().collect();
    let [driver] = drivers[..] else { panic!("{drivers:?}") };
    let help = Command::new(program()).args(["csi", "--help"]).output().unwrap();
    assert!(text(&help).contains(&format!("[default: {driver}]")), "{}", text(&help));
    let node = documents.iter().find(|document| document["kind"] == "DaemonSet").unwrap();
    let registered = format!("--kubelet-registration-path=/var/lib/kubelet/plugins/{driver}/csi.sock");
    assert!(node.to_string().contains(&registered));
    let mut named = BTreeSet::new();
    for document in &documents {
        if document["kind"] == "StorageClass" {
            named.insert(string(&document["provisioner"]));
            check_secrets(&documents, document);
        }
        let volumes = pod(document).map_or(&[][..], |pod| list(&pod["volumes"]));
        let sources = volumes.iter().map(|volume| &volume["csi"]).chain([&document["spec"]["csi"]]);
        named.extend(sources.filter(|source| !source.is_null()).map(|source| string(&source["driver"])));
    }
    assert_eq!(named, [driver].into());
}

/// Checks that the secret that a storage class names exists for each request that needs one.
fn check_secrets(documents: &[Value], class: &Value) {
    let secrets: BTreeSet<(&str, &str)> = documents
        .iter()
        .filter(|document| document["kind"] == "Secret")
        .map(|secret| (string(&secret["metadata"]["name"]), string(&secret["metadata"]["namespace"])))
        .collect();
    for request in ["provisioner", "node-stage", "controller-expand"] {
        let parameter =
            |what: &str| string(&class["parameters"][format!("csi.storage.k8s.io/{request}-secret-{what}")]);
        assert!(secrets.contains(&(parameter("name"), parameter("namespace"))), "{request}");
    }
}
